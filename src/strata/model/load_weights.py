"""Read a model's weights from a directory of GGUF tensors into float32 (gguf-tensors spec, sections 3 and 5).

Nothing is un-transformed: the forward pass works in the file's own conventions (see `model.weights`).
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import ModelError
from strata.model import weights as w
from strata.model.config import Mixer, ModelConfig


class Info(Protocol):
    """What the loader needs to know of a tensor without reading it."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Outputs first."""
        ...


class Directory(Protocol):
    """The part of `strata.gguf.TensorDirectory` the loader uses."""

    @property
    def tensors(self) -> Mapping[str, Info]:
        """All tensors by name."""
        ...

    def load(self, name: str) -> NDArray[np.float32]:
        """A whole tensor, dequantised."""
        ...

    def rows(self, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
        """Some rows of a matrix, dequantised."""
        ...


class FileTable:
    """A `RowTable` that reads its rows from the file when asked; repeated rows are read once a call."""

    def __init__(self, directory: Directory, name: str) -> None:
        self._directory = directory
        self._name = name
        rows, width = directory.tensors[name].shape
        self.shape = (rows, width)

    def rows(self, ids: Sequence[int]) -> Tensor:
        """float32 [len(ids), width]."""
        return torch.from_numpy(self._directory.rows(self._name, ids))


class Taker:
    """Hands out tensors once each, after checking their shape, and knows which nobody asked for."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._taken: set[str] = set()

    def has(self, name: str) -> bool:
        """Whether the file holds the tensor."""
        return name in self._directory.tensors

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raise ModelError unless the tensor is there with that shape."""
        if not self.has(name):
            raise ModelError(f"tensor {name} is missing; expected shape {list(shape)}")
        found = self._directory.tensors[name].shape
        if found != shape:
            raise ModelError(f"tensor {name} has shape {list(found)}, expected {list(shape)}")
        self._taken.add(name)

    def rows_of(self, name: str) -> int:
        """Rows of a matrix whose height the metadata does not say."""
        return self._directory.tensors[name].shape[0]

    def tensor(self, name: str, *shape: int) -> Tensor:
        """A float32 tensor, multiplied by its `.scale` tensor if the file has one (NVFP4)."""
        self.check(name, shape)
        values = torch.from_numpy(self._directory.load(name))
        scale = name.removesuffix(".weight") + ".scale"
        if name.endswith(".weight") and self.has(scale):
            per = shape[:1] if len(shape) == 3 else (1,)
            self.check(scale, per)
            values = values * torch.from_numpy(self._directory.load(scale)).reshape(-1, *([1] * (len(shape) - 1)))
        return values

    def table(self, name: str, rows: int, width: int) -> FileTable:
        """A matrix that stays in the file."""
        self.check(name, (rows, width))
        return FileTable(self._directory, name)

    def unused(self) -> list[str]:
        """Names of tensors nobody took."""
        return sorted(set(self._directory.tensors) - self._taken)


def load_weights(directory: Directory, c: ModelConfig) -> tuple[w.Weights, list[str]]:
    """Load everything the forward pass needs.

    Returns:
        The weights, and the names of tensors in the file that were not used.

    Raises:
        ModelError: a tensor is missing or has another shape.
    """
    take = Taker(directory)
    embed = take.table("token_embd.weight", c.V, c.H)
    head_name = "output.weight" if take.has("output.weight") else "token_embd.weight"
    head = take.tensor(head_name, c.V, c.H)
    layers = tuple(_layer(take, c, f"blk.{i}.", mixer, i) for i, mixer in enumerate(c.mixers))
    mixer = _hyper_connection(take, c, "output_hc_", inject=False)
    mtp = _mtp(take, c, embed, head) if c.mtp else None
    return w.Weights(embed, layers, mixer, head, mtp), take.unused()


def _layer(take: Taker, c: ModelConfig, prefix: str, mixer: Mixer, index: int | None) -> w.Layer:
    return w.Layer(
        attn_hc=_hyper_connection(take, c, prefix + "hc_attn_", inject=True),
        mixer=_gdn(take, c, prefix) if mixer is Mixer.GDN else _qsa(take, c, prefix),
        mlp_hc=_hyper_connection(take, c, prefix + "hc_ffn_", inject=True),
        moe=_moe(take, c, prefix),
        ple=_ple(take, c, prefix) if c.ple and index == c.ple.layer else None,
    )


def _hyper_connection(take: Taker, c: ModelConfig, prefix: str, *, inject: bool) -> w.HyperConnection:
    wide = c.S * c.H
    return w.HyperConnection(
        norm=take.tensor(prefix + "norm.weight", wide),
        down=take.tensor(prefix + "down.weight", c.r, wide),
        up=take.tensor(prefix + "up.weight", wide, c.r),
        inject=take.tensor(prefix + "inject.weight", c.S, wide) if inject else None,
    )


def _gdn(take: Taker, c: ModelConfig, prefix: str) -> w.Gdn:
    g = c.gdn
    return w.Gdn(
        qkv=take.tensor(prefix + "attn_qkv.weight", g.channels, c.H),
        z=take.tensor(prefix + "attn_gate.weight", g.nv * g.d, c.H),
        alpha=take.tensor(prefix + "ssm_alpha.weight", g.nv, c.H),
        beta=take.tensor(prefix + "ssm_beta.weight", g.nv, c.H),
        conv=take.tensor(prefix + "ssm_conv1d.weight", g.channels, g.conv),
        a=take.tensor(prefix + "ssm_a", g.nv),
        dt=take.tensor(prefix + "ssm_dt.bias", g.nv),
        norm=take.tensor(prefix + "ssm_norm.weight", g.d),
        out=take.tensor(prefix + "ssm_out.weight", c.H, g.nv * g.d),
    )


def _qsa(take: Taker, c: ModelConfig, prefix: str) -> w.Qsa:
    q = c.qsa
    return w.Qsa(
        q=take.tensor(prefix + "attn_q.weight", q.nh * 2 * q.hd, c.H),
        k=take.tensor(prefix + "attn_k.weight", q.nkv * q.hd, c.H),
        v=take.tensor(prefix + "attn_v.weight", q.nkv * q.hd, c.H),
        o=take.tensor(prefix + "attn_output.weight", c.H, q.nh * q.hd),
        q_norm=take.tensor(prefix + "attn_q_norm.weight", q.hd),
        k_norm=take.tensor(prefix + "attn_k_norm.weight", q.hd),
        iq=take.tensor(prefix + "indexer.q_proj.weight", q.ih * q.id, c.H),
        ik=take.tensor(prefix + "indexer.k_proj.weight", q.id, c.H),
        iq_norm=take.tensor(prefix + "indexer.q_norm.weight", q.id),
        ik_norm=take.tensor(prefix + "indexer.k_norm.weight", q.id),
    )


def _moe(take: Taker, c: ModelConfig, prefix: str) -> w.Moe:
    m = c.moe
    if take.has(prefix + "ffn_gate_up_exps.weight"):
        gate, up = take.tensor(prefix + "ffn_gate_up_exps.weight", m.E, 2 * m.I, c.H).split(m.I, dim=1)
    else:
        gate = take.tensor(prefix + "ffn_gate_exps.weight", m.E, m.I, c.H)
        up = take.tensor(prefix + "ffn_up_exps.weight", m.E, m.I, c.H)
    return w.Moe(
        router=take.tensor(prefix + "ffn_gate_inp.weight", m.E, c.H),
        gate=gate,
        up=up,
        down=take.tensor(prefix + "ffn_down_exps.weight", m.E, c.H, m.I),
        shared_weight=take.tensor(prefix + "ffn_gate_inp_shexp.weight", c.H),
        shared_gate=take.tensor(prefix + "ffn_gate_shexp.weight", m.shared, c.H),
        shared_up=take.tensor(prefix + "ffn_up_shexp.weight", m.shared, c.H),
        shared_down=take.tensor(prefix + "ffn_down_shexp.weight", c.H, m.shared),
    )


def _ple(take: Taker, c: ModelConfig, prefix: str) -> w.Ple:
    assert c.ple is not None
    wide, embedded = c.S * c.H, c.ple.rows_per_token * c.ple.width
    name = "per_layer_token_embd.weight"
    if not take.has(name):
        raise ModelError(f"tensor {name} is missing; expected shape [rows, {c.ple.width}]")
    table = take.table(name, take.rows_of(name), c.ple.width)
    _check_hash(c, table.shape[0])
    return w.Ple(
        table=table,
        key=take.tensor(prefix + "ple_key.weight", wide, embedded),
        value=take.tensor(prefix + "ple_value.weight", c.H, embedded),
        norm_key=take.tensor(prefix + "ple_norm_key.weight", wide),
        norm_query=take.tensor(prefix + "ple_norm_query.weight", wide),
        norm_conv=take.tensor(prefix + "ple_norm_conv.weight", wide),
        conv=take.tensor(prefix + "ple_conv1d.weight", wide, c.ple.conv),
    )


def _check_hash(c: ModelConfig, rows: int) -> None:
    """No head may hash past the table's end."""
    assert c.ple is not None
    for head, (offset, size) in enumerate(zip(c.ple.offsets, c.ple.sizes, strict=True)):
        if offset + size > rows:
            raise ModelError(
                f"qwen4exp.ple.head_offsets and head_vocab_sizes: head {head} ends at row {offset + size}, "
                f"but per_layer_token_embd.weight has {rows} rows"
            )


def _mtp(take: Taker, c: ModelConfig, embed: FileTable, head: Tensor) -> w.Mtp:
    prefix = f"blk.{c.L}."
    eh = take.tensor(prefix + "nextn.eh_proj.weight", c.H, 2 * c.H)
    own_embed, own_head = prefix + "nextn.embed_tokens.weight", prefix + "nextn.shared_head_head.weight"
    return w.Mtp(
        enorm=take.tensor(prefix + "nextn.enorm.weight", c.H),
        hnorm=take.tensor(prefix + "nextn.hnorm.weight", c.S * c.H),
        fc_embedding=eh[:, : c.H].contiguous(),
        fc_hidden=eh[:, c.H :].contiguous(),
        layer=_layer(take, c, prefix, Mixer.QSA, None),
        mixer=_hyper_connection(take, c, prefix + "nextn.hc_head_", inject=False),
        embed=take.table(own_embed, c.V, c.H) if take.has(own_embed) else embed,
        head=take.tensor(own_head, c.V, c.H) if take.has(own_head) else head,
    )
