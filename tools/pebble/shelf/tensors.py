"""Checkpoint names and conventions to a file's (gguf-tensors specification, sections 3 to 5)."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from pebble.shape import Shape

F32 = NDArray[np.float32]


class Checkpoint:
    """A state dict read as float32 arrays; remembers what was taken."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._state = state
        self.left = set(state)

    def __call__(self, name: str) -> F32:
        """One tensor."""
        self.left.discard(name)
        return self._state[name].detach().float().cpu().numpy()

    def norm(self, name: str) -> F32:
        """A norm's weight as a file stores it: with the one of "one plus w" added."""
        return self(name) + np.float32(1)


def tiled(shape: Shape, rows: F32, width: int) -> F32:
    """Value heads from grouped to tiled order: blocks of ``width`` rows; file head j is head perm[j]."""
    ratio = shape.nv // shape.nk
    perm = [(j % shape.nk) * ratio + j // shape.nk for j in range(shape.nv)]
    return rows.reshape(shape.nv, width, *rows.shape[1:])[perm].reshape(rows.shape)


def _connection(take: Checkpoint, theirs: str, ours: str) -> Iterator[tuple[str, F32]]:
    yield f"{ours}_norm.weight", take.norm(f"{theirs}.hc_norm.weight")
    yield f"{ours}_down.weight", take(f"{theirs}.input_mix_weight_down.weight")
    yield f"{ours}_up.weight", take(f"{theirs}.input_mix_weight_up.weight")


def _experts(take: Checkpoint, theirs: str, ours: str) -> Iterator[tuple[str, F32]]:
    gate, up = np.split(take(f"{theirs}.experts.gate_up_proj"), 2, axis=1)
    shared = f"{theirs}.shared_expert"
    yield f"{ours}.ffn_gate_inp.weight", take(f"{theirs}.gate.weight")
    yield f"{ours}.ffn_gate_exps.weight", np.ascontiguousarray(gate)
    yield f"{ours}.ffn_up_exps.weight", np.ascontiguousarray(up)
    yield f"{ours}.ffn_down_exps.weight", take(f"{theirs}.experts.down_proj")
    yield f"{ours}.ffn_gate_inp_shexp.weight", take(f"{theirs}.shared_expert_gate.weight")[0]
    yield f"{ours}.ffn_gate_shexp.weight", take(f"{shared}.gate_proj.weight")
    yield f"{ours}.ffn_up_shexp.weight", take(f"{shared}.up_proj.weight")
    yield f"{ours}.ffn_down_shexp.weight", take(f"{shared}.down_proj.weight")


def _gdn(take: Checkpoint, shape: Shape, theirs: str, ours: str) -> Iterator[tuple[str, F32]]:
    keys, d = 2 * shape.nk * shape.d, shape.d

    def values_tiled(x: F32) -> F32:
        return np.concatenate([x[:keys], tiled(shape, x[keys:], d)])

    yield f"{ours}.attn_qkv.weight", values_tiled(take(f"{theirs}.in_proj_qkv.weight"))
    yield f"{ours}.attn_gate.weight", tiled(shape, take(f"{theirs}.in_proj_z.weight"), d)
    yield f"{ours}.ssm_conv1d.weight", values_tiled(take(f"{theirs}.conv1d.weight")[:, 0])
    yield f"{ours}.ssm_alpha.weight", tiled(shape, take(f"{theirs}.in_proj_a.weight"), 1)
    yield f"{ours}.ssm_beta.weight", tiled(shape, take(f"{theirs}.in_proj_b.weight"), 1)
    yield f"{ours}.ssm_dt.bias", tiled(shape, take(f"{theirs}.dt_bias"), 1)
    yield f"{ours}.ssm_a", tiled(shape, -np.exp(take(f"{theirs}.A_log")), 1)
    yield f"{ours}.ssm_norm.weight", take(f"{theirs}.norm.weight")
    out = tiled(shape, np.ascontiguousarray(take(f"{theirs}.out_proj.weight").T), d)
    yield f"{ours}.ssm_out.weight", np.ascontiguousarray(out.T)


def _qsa(take: Checkpoint, shape: Shape, theirs: str, ours: str) -> Iterator[tuple[str, F32]]:
    for name, theirs_name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("output", "o_proj")):
        yield f"{ours}.attn_{name}.weight", take(f"{theirs}.{theirs_name}.weight")
    yield f"{ours}.attn_q_norm.weight", take.norm(f"{theirs}.q_norm.weight")
    yield f"{ours}.attn_k_norm.weight", take.norm(f"{theirs}.k_norm.weight")
    both = take(f"{theirs}.indexer.index_qk_proj.weight")
    yield f"{ours}.indexer.q_proj.weight", both[: shape.ih * shape.id]
    yield f"{ours}.indexer.k_proj.weight", both[shape.ih * shape.id :]
    yield f"{ours}.indexer.q_norm.weight", take.norm(f"{theirs}.indexer.q_layernorm.weight")
    yield f"{ours}.indexer.k_norm.weight", take.norm(f"{theirs}.indexer.k_layernorm.weight")


def _ple(take: Checkpoint, theirs: str, ours: str) -> Iterator[tuple[str, F32]]:
    yield "per_layer_token_embd.weight", take(f"{theirs}.ple_embedding.ngram_embedding.weight")
    yield f"{ours}.ple_key.weight", take(f"{theirs}.key_proj.weight")
    yield f"{ours}.ple_value.weight", take(f"{theirs}.value_proj.weight")
    for name in ("key", "query", "conv"):
        yield f"{ours}.ple_norm_{name}.weight", take.norm(f"{theirs}.norm_{name}.weight")
    yield f"{ours}.ple_conv1d.weight", take(f"{theirs}.conv1d.weight")[:, 0]


def _layer(take: Checkpoint, shape: Shape, theirs: str, ours: str, *, qsa: bool) -> Iterator[tuple[str, F32]]:
    for part, short in (("attn", "attn"), ("mlp", "ffn")):
        hyper = f"{theirs}.{part}_hyper_connection"
        yield from _connection(take, hyper, f"{ours}.hc_{short}")
        yield f"{ours}.hc_{short}_inject.weight", take(f"{hyper}.block_inject_weight.weight")
    if qsa:
        yield from _qsa(take, shape, f"{theirs}.self_attn", ours)
    else:
        yield from _gdn(take, shape, f"{theirs}.linear_attn", ours)
    yield from _experts(take, f"{theirs}.mlp", ours)


def tensors(state: Mapping[str, Tensor], shape: Shape) -> Iterator[tuple[str, F32]]:
    """Every tensor of the file, by name, float32, shape in torch order.

    Raises:
        ValueError: the checkpoint holds tensors that no file tensor comes from.
    """
    take = Checkpoint(state)
    yield "token_embd.weight", take("model.embed_tokens.weight")
    yield "output.weight", take("lm_head.weight")
    yield from _connection(take, "model.hyper_connection_mixer", "output_hc")
    for i in range(shape.L):
        yield from _layer(take, shape, f"model.layers.{i}", f"blk.{i}", qsa=shape.is_qsa(i))
        if i == 1:
            yield from _ple(take, "model.layers.1.ple", "blk.1")
    ours = f"blk.{shape.L}"
    yield from _layer(take, shape, "mtp.layers.0", ours, qsa=True)
    yield f"{ours}.nextn.enorm.weight", take.norm("mtp.pre_fc_norm_embedding.weight")
    yield f"{ours}.nextn.hnorm.weight", take.norm("mtp.pre_fc_norm_hidden.weight")
    both = [take(f"mtp.fc_{part}.weight") for part in ("embedding", "hidden")]
    yield f"{ours}.nextn.eh_proj.weight", np.concatenate(both, axis=1)
    yield from _connection(take, "mtp.hyper_connection_mixer", f"{ours}.nextn.hc_head")
    if take.left:
        raise ValueError(f"tensors without a place in the file: {sorted(take.left)}")
