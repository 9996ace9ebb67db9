"""Tiny models stored in quantised types, and the oracle holding the same numbers.

The file's bytes are random blocks. The oracle gets them through the `gguf` package's dequantisers (and the formula of
the spec for the one type that package does not know), so nothing on its side is ours.
"""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import gguf
from strata.formats import by_name
from strata.gguf import TensorData, write_model
from support import tiny
from support.blocks import random_blocks

WIDE = (
    *("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_XS"),
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "Q2_0", "NVFP4", "BF16"),
)
"""For rows of 256 weights."""

NARROW = ("IQ4_NL", "Q5_1", "Q8_0", "Q4_0", "MXFP4", "Q5_0", "Q4_1", "F16")
"""For rows of any multiple of 32."""

PAIRS = ("Q2_0", "NVFP4")
"""For rows of any multiple of 64."""


def dequantised(name: str, raw: np.ndarray) -> np.ndarray:
    """Weights of stored rows, without any of our own code."""
    if name != "Q2_0":
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])
    blocks = raw.reshape(-1, 18)
    d = blocks[:, :2].copy().view("<f2").astype(np.float32)
    codes = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    return ((codes.reshape(-1, 64).astype(np.float32) - 1) * d).reshape(*raw.shape[:-1], -1)


def mix(name: str, seed: int) -> Iterator[tuple[str, np.ndarray, str | None]]:
    """Every tensor of tiny model `name` with a type for it: (name, float32 values, type or None for float32)."""
    wide, narrow, pairs = (0, 0, 0)
    for tensor, values in tiny.tensors(name).items():
        width = values.shape[-1]
        if values.ndim == 1 or "conv1d" in tensor or "ffn_gate_inp" in tensor:
            yield tensor, values, None
        elif width % 256 == 0:
            yield tensor, values, WIDE[(wide + 5 * seed) % len(WIDE)]
            wide += 1
        elif width % 64 == 0 and (narrow + pairs) % 3 == 0:
            yield tensor, values, PAIRS[(pairs + seed) % len(PAIRS)]
            pairs += 1
        else:
            yield tensor, values, NARROW[(narrow + 3 * seed) % len(NARROW)]
            narrow += 1


def write(folder: Path, name: str, seed: int, *, split: bool) -> tuple[Path, dict[str, np.ndarray], set[str]]:
    """Write one model; return its path, the weights the oracle must hold, and the types used."""
    rng = np.random.default_rng(seed)
    stored, held, used = [], {}, set()
    for tensor, values, kind in mix(name, seed):
        raw = values.view(np.uint8) if kind is None else random_blocks(kind, values.shape, rng, 0.08)
        held[tensor] = values if kind is None else dequantised(kind, raw)
        stored.append(TensorData(tensor, values.shape, by_name(kind or "F32"), raw))
        used.add(kind or "F32")
    shards = None
    if split:  # metadata alone, the table alone, and the parts of an expert layer apart
        names = [t.name for t in stored]
        table = ["per_layer_token_embd.weight"]
        third = [n for n in names if "ffn_down_exps" in n or "blk.2.ffn_gate_exps" in n]
        rest = [n for n in names if n not in table + third]
        shards = [[], third, rest, table]
    path = folder / f"{name}-{seed}.gguf"
    write_model(path, tiny.metadata(tiny.SETTINGS[name]), stored, shards=shards)
    first = min(folder.glob(f"{name}-{seed}*.gguf"))
    return first, held, used


def oracle_holding(name: str, held: dict[str, np.ndarray]) -> torch.nn.Module:
    """A copy of the oracle with the matrices of a file: gguf-tensors spec section 4, backwards."""
    settings, model = tiny.SETTINGS[name], copy.deepcopy(tiny.oracle(name))
    state = model.state_dict()
    nk, nv, d = (settings[f"linear_{k}"] for k in ("num_key_heads", "num_value_heads", "value_head_dim"))
    back = torch.tensor(np.argsort(tiny.tiled(nk, nv)))

    def t(tensor: str) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(held[tensor]))

    def heads(x: torch.Tensor, width: int, dim: int = 0) -> torch.Tensor:
        return x.unflatten(dim, (nv, width)).index_select(dim, back).flatten(dim, dim + 1)

    def put(key: str, value: torch.Tensor) -> None:
        assert state[key].shape == value.shape, key
        state[key].copy_(value)

    put("model.embed_tokens.weight", t("token_embd.weight"))
    put("lm_head.weight", t("output.weight"))
    connections = [("model.hyper_connection_mixer.", "output_hc_", False)]
    for i in range(settings["num_hidden_layers"]):
        p, q = f"model.layers.{i}.", f"blk.{i}."
        connections += [
            (p + "attn_hyper_connection.", q + "hc_attn_", True),
            (p + "mlp_hyper_connection.", q + "hc_ffn_", True),
        ]
        put(
            p + "mlp.experts.gate_up_proj",
            torch.cat((t(q + "ffn_gate_exps.weight"), t(q + "ffn_up_exps.weight")), 1),
        )
        put(p + "mlp.experts.down_proj", t(q + "ffn_down_exps.weight"))
        for part in ("gate", "up", "down"):
            put(f"{p}mlp.shared_expert.{part}_proj.weight", t(f"{q}ffn_{part}_shexp.weight"))
        if i % 4 == 3:
            for part, file in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
                put(f"{p}self_attn.{part}_proj.weight", t(f"{q}attn_{file}.weight"))
            both = torch.cat((t(q + "indexer.q_proj.weight"), t(q + "indexer.k_proj.weight")))
            put(p + "self_attn.indexer.index_qk_proj.weight", both)
        else:
            qkv, keys = t(q + "attn_qkv.weight"), 2 * nk * d
            put(p + "linear_attn.in_proj_qkv.weight", torch.cat((qkv[:keys], heads(qkv[keys:], d))))
            put(p + "linear_attn.in_proj_z.weight", heads(t(q + "attn_gate.weight"), d))
            put(p + "linear_attn.in_proj_a.weight", heads(t(q + "ssm_alpha.weight"), 1))
            put(p + "linear_attn.in_proj_b.weight", heads(t(q + "ssm_beta.weight"), 1))
            put(p + "linear_attn.out_proj.weight", heads(t(q + "ssm_out.weight"), d, 1))
    for target, source, inject in connections:
        put(target + "input_mix_weight_down.weight", t(source + "down.weight"))
        put(target + "input_mix_weight_up.weight", t(source + "up.weight"))
        if inject:
            put(target + "block_inject_weight.weight", t(source + "inject.weight"))
    ple = "model.layers.1.ple."
    put(ple + "ple_embedding.ngram_embedding.weight", t("per_layer_token_embd.weight"))
    for part in ("key", "value"):
        put(f"{ple}{part}_proj.weight", t(f"blk.1.ple_{part}.weight"))
    return model


def logits(model: Any, ids: list[int]) -> torch.Tensor:
    """The oracle's logits [T, V]."""
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]
