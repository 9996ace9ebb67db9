"""Tiny random models of the oracle, and their weights in the file's conventions.

The conversion follows gguf-tensors spec section 4 and shares nothing with the loader under test.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

from strata.formats import BlockType, by_name

BASE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 256,
    "num_hidden_layers": 8,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_num_value_heads": 6,
    "linear_value_head_dim": 32,
    "linear_conv_kernel_dim": 4,
    "num_experts": 16,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
    "norm_topk_prob": True,
    "hc_count": 4,
    "hc_lowrank": 32,
    "output_gate_type": "sigmoid",
    "ple_layer_ids": [2],
    "ple_embed_dim": 256,
    "ple_conv_kernel_size": 4,
    "ngram_size": 3,
    "heads_per_ngram": 4,
    "ngram_vocab_size_base": 1000,
    "make_ngram_vocab_size_divisible_by": 128,
    "split_ngram_parts": 4,
    "seed": 1234,
    "indexer_n_heads": 4,
    "indexer_kv_heads": 1,
    "indexer_head_dim": 32,
    "indexer_budget": 16,
    "indexer_compress_ratio": 4,
    "eos_token_id": 0,
    "bos_token_id": 0,
    "pad_token_id": None,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 1024,
}
"""Model spec, section 19.2."""

OTHER: dict[str, Any] = BASE | {
    "hidden_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
    "linear_num_key_heads": 3,
    "linear_num_value_heads": 6,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "hc_count": 2,
    "indexer_n_heads": 2,
    "ple_embed_dim": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "indexer_budget": 24,
}
"""Other head ratios everywhere: 2 value heads a key head, 2 query heads a key/value head, 2 streams."""

YARN: dict[str, Any] = BASE | {
    "rope_parameters": BASE["rope_parameters"]
    | {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64},
    "num_hidden_layers": 4,
}


SLIM: dict[str, Any] = BASE | {
    "vocab_size": 128,
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "hc_count": 2,
    "indexer_n_heads": 2,
    "ple_embed_dim": 64,
    "ngram_vocab_size_base": 100,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "max_position_embeddings": 128,
}
"""As small as kernels allow: what Triton's interpreter runs in seconds."""

SETTINGS = {"base": BASE, "other": OTHER, "yarn": YARN, "slim": SLIM}


@functools.cache
def oracle(name: str, seed: int = 0) -> Qwen4ExpForCausalLM:
    """The transformers model of a configuration ("base", "other", "yarn"), filled as section 19.2 says."""
    settings = SETTINGS[name]
    torch.manual_seed(seed)
    model = Qwen4ExpForCausalLM(Qwen4ExpTextConfig(**settings, attn_implementation="eager")).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for key, p in model.named_parameters():
            if key.endswith(("A_log", "dt_bias")):
                continue
            std = 0.3 if "conv1d" in key else 0.2 if p.ndim == 1 else 0.08
            p.copy_(torch.randn(p.shape, generator=generator) * std)
            if key.endswith("linear_attn.norm.weight"):
                p.add_(1.0)
    return model


def tiled(nk: int, nv: int) -> list[int]:
    """File value head j holds checkpoint head `tiled[j]` (gguf-tensors spec, section 4.5)."""
    return [(j % nk) * (nv // nk) + j // nk for j in range(nv)]


def metadata(settings: dict[str, Any], *, mtp: bool = False) -> dict[str, Any]:
    """GGUF metadata of a configuration (gguf-tensors spec, section 2)."""
    layers, rope = settings["num_hidden_layers"], settings["rope_parameters"]
    ple = oracle_ple(settings)
    a = "qwen4exp."
    keys: dict[str, Any] = {
        "general.architecture": "qwen4exp",
        "general.name": "tiny",
        a + "vocab_size": settings["vocab_size"],
        a + "context_length": settings["max_position_embeddings"],
        a + "embedding_length": settings["hidden_size"],
        a + "block_count": layers + mtp,
        a + "attention.head_count": settings["num_attention_heads"],
        a + "attention.head_count_kv": settings["num_key_value_heads"],
        a + "attention.key_length": settings["head_dim"],
        a + "attention.value_length": settings["head_dim"],
        a + "attention.layer_norm_rms_epsilon": settings["rms_norm_eps"],
        a + "rope.dimension_count": int(settings["head_dim"] * rope["partial_rotary_factor"]),
        a + "rope.dimension_sections": np.array([*rope["mrope_section"], 0], np.int32),
        a + "rope.freq_base": rope["rope_theta"],
        a + "expert_count": settings["num_experts"],
        a + "expert_used_count": settings["num_experts_per_tok"],
        a + "expert_feed_forward_length": settings["moe_intermediate_size"],
        a + "expert_shared_feed_forward_length": settings["shared_expert_intermediate_size"],
        a + "full_attention_interval": 4,
        a + "ssm.conv_kernel": settings["linear_conv_kernel_dim"],
        a + "ssm.state_size": settings["linear_key_head_dim"],
        a + "ssm.group_count": settings["linear_num_key_heads"],
        a + "ssm.time_step_rank": settings["linear_num_value_heads"],
        a + "ssm.inner_size": settings["linear_num_value_heads"] * settings["linear_value_head_dim"],
        a + "hyper_connection.count": settings["hc_count"],
        a + "hyper_connection.low_rank": settings["hc_lowrank"],
        a + "attention.indexer.head_count": settings["indexer_n_heads"],
        a + "attention.indexer.key_length": settings["indexer_head_dim"],
        a + "attention.indexer.top_k": settings["indexer_budget"],
        a + "attention.compress_ratios": np.array(
            [settings["indexer_compress_ratio"] if i % 4 == 3 else 0 for i in range(layers)] + [0] * mtp, np.int32
        ),
        a + "ple.layers": np.array([settings["ple_layer_ids"][0] - 1], np.int32),
        a + "ple.ngram_size": settings["ngram_size"],
        a + "ple.heads_per_ngram": settings["heads_per_ngram"],
        a + "ple.conv_kernel": settings["ple_conv_kernel_size"],
        a + "ple.eos_token_id": settings["eos_token_id"],
        a + "ple.layer_multipliers": ple[0].astype(np.uint64),
        a + "ple.head_vocab_sizes": ple[1].astype(np.uint64),
        a + "ple.head_offsets": ple[2].astype(np.uint64),
        a + "embedding_length_per_layer_input": settings["ple_embed_dim"]
        // ((settings["ngram_size"] - 1) * settings["heads_per_ngram"]),
    }
    if mtp:
        keys[a + "nextn_predict_layers"] = 1
    if rope["rope_type"] == "yarn":
        keys[a + "rope.scaling.type"] = "yarn"
        keys[a + "rope.scaling.factor"] = rope["factor"]
        keys[a + "rope.scaling.original_context_length"] = rope["original_max_position_embeddings"]
    return keys


def oracle_ple(settings: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Multipliers, sizes and offsets as the oracle's own buffers hold them."""
    name = next(n for n, s in SETTINGS.items() if s is settings)
    state = oracle(name).state_dict()
    prefix = f"model.layers.{settings['ple_layer_ids'][0] - 1}.ple.ple_embedding."
    parts = ("layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets")
    return tuple(state[prefix + part].numpy() for part in parts)  # type: ignore[return-value]


def tensors(name: str) -> dict[str, np.ndarray]:
    """The oracle's weights under their file names, transformed as a converter does."""
    settings, state = SETTINGS[name], oracle(name).state_dict()
    out: dict[str, np.ndarray] = {}

    def put(target: str, value: torch.Tensor) -> None:
        out[target] = value.float().contiguous().numpy()

    put("token_embd.weight", state["model.embed_tokens.weight"])
    put("output.weight", state["lm_head.weight"])
    hyper_connection(put, state, "model.hyper_connection_mixer.", "output_hc_")
    for i in range(settings["num_hidden_layers"]):
        layer(put, state, f"model.layers.{i}.", f"blk.{i}.", settings)
    ple = f"model.layers.{settings['ple_layer_ids'][0] - 1}.ple."
    target = f"blk.{settings['ple_layer_ids'][0] - 1}.ple_"
    put("per_layer_token_embd.weight", state[ple + "ple_embedding.ngram_embedding.weight"])
    for part in ("key", "value"):
        put(f"{target}{part}.weight", state[f"{ple}{part}_proj.weight"])
    for part in ("norm_key", "norm_query", "norm_conv"):
        put(f"{target}{part}.weight", state[f"{ple}{part}.weight"] + 1)
    put(f"{target}conv1d.weight", state[ple + "conv1d.weight"][:, 0])
    return out


def hyper_connection(put: Any, state: dict[str, torch.Tensor], source: str, target: str) -> None:
    """Write one hyper-connection module."""
    put(target + "norm.weight", state[source + "hc_norm.weight"] + 1)
    put(target + "down.weight", state[source + "input_mix_weight_down.weight"])
    put(target + "up.weight", state[source + "input_mix_weight_up.weight"])
    if source + "block_inject_weight.weight" in state:
        put(target + "inject.weight", state[source + "block_inject_weight.weight"])


def layer(put: Any, state: dict[str, torch.Tensor], source: str, target: str, settings: dict[str, Any]) -> None:
    """Write one decoder layer."""
    hyper_connection(put, state, source + "attn_hyper_connection.", target + "hc_attn_")
    hyper_connection(put, state, source + "mlp_hyper_connection.", target + "hc_ffn_")
    gate, up = state[source + "mlp.experts.gate_up_proj"].chunk(2, dim=1)
    put(target + "ffn_gate_inp.weight", state[source + "mlp.gate.weight"])
    put(target + "ffn_gate_exps.weight", gate)
    put(target + "ffn_up_exps.weight", up)
    put(target + "ffn_down_exps.weight", state[source + "mlp.experts.down_proj"])
    put(target + "ffn_gate_inp_shexp.weight", state[source + "mlp.shared_expert_gate.weight"][0])
    for part in ("gate", "up", "down"):
        put(f"{target}ffn_{part}_shexp.weight", state[f"{source}mlp.shared_expert.{part}_proj.weight"])
    if source + "self_attn.q_proj.weight" in state:
        attention(put, state, source + "self_attn.", target, settings)
    else:
        recurrent(put, state, source + "linear_attn.", target, settings)


def attention(put: Any, state: dict[str, torch.Tensor], source: str, target: str, settings: dict[str, Any]) -> None:
    """Write one sparse-attention mixer."""
    for part, name in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output")):
        put(f"{target}attn_{name}.weight", state[f"{source}{part}_proj.weight"])
    for part in ("q", "k"):
        put(f"{target}attn_{part}_norm.weight", state[f"{source}{part}_norm.weight"] + 1)
        put(f"{target}indexer.{part}_norm.weight", state[f"{source}indexer.{part}_layernorm.weight"] + 1)
    qk = state[source + "indexer.index_qk_proj.weight"]
    width = settings["indexer_head_dim"]
    put(target + "indexer.q_proj.weight", qk[:-width])
    put(target + "indexer.k_proj.weight", qk[-width:])


def recurrent(put: Any, state: dict[str, torch.Tensor], source: str, target: str, settings: dict[str, Any]) -> None:
    """Write one recurrent mixer, value heads in tiles."""
    nk, nv = settings["linear_num_key_heads"], settings["linear_num_value_heads"]
    d, order = settings["linear_value_head_dim"], tiled(nk, nv)

    def heads(x: torch.Tensor, width: int, dim: int = 0) -> torch.Tensor:
        blocks = x.unflatten(dim, (nv, width)).index_select(dim, torch.tensor(order))
        return blocks.flatten(dim, dim + 1)

    def tail(x: torch.Tensor) -> torch.Tensor:
        keys = 2 * nk * settings["linear_key_head_dim"]
        return torch.cat((x[:keys], heads(x[keys:], d)))

    put(target + "attn_qkv.weight", tail(state[source + "in_proj_qkv.weight"]))
    put(target + "attn_gate.weight", heads(state[source + "in_proj_z.weight"], d))
    put(target + "ssm_alpha.weight", heads(state[source + "in_proj_a.weight"], 1))
    put(target + "ssm_beta.weight", heads(state[source + "in_proj_b.weight"], 1))
    put(target + "ssm_conv1d.weight", tail(state[source + "conv1d.weight"][:, 0]))
    put(target + "ssm_a", heads(-torch.exp(state[source + "A_log"]), 1))
    put(target + "ssm_dt.bias", heads(state[source + "dt_bias"], 1))
    put(target + "ssm_norm.weight", state[source + "norm.weight"])
    put(target + "ssm_out.weight", heads(state[source + "out_proj.weight"], d, dim=1))


_F32 = by_name("F32")


@dataclass(frozen=True)
class MemoryInfo:
    """Shape of an in-memory tensor, which is float32."""

    shape: tuple[int, ...]
    type: BlockType = _F32


class MemoryDirectory:
    """The part of a tensor directory the loader uses, over arrays in memory."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays
        self.tensors = {name: MemoryInfo(value.shape) for name, value in arrays.items()}

    def load(self, name: str) -> np.ndarray:
        """A whole tensor."""
        return self.arrays[name].copy()

    def raw(self, name: str) -> np.ndarray:
        """Its bytes."""
        return np.ascontiguousarray(self.arrays[name], np.float32).view(np.uint8)

    def rows(self, name: str, ids: Sequence[int]) -> np.ndarray:
        """Some rows."""
        return self.arrays[name][list(ids)]


def mtp_tensors(name: str, head: torch.nn.Module) -> dict[str, np.ndarray]:
    """The draft head's tensors under their file names (gguf-tensors spec, section 5)."""
    settings, state = SETTINGS[name], head.state_dict()
    prefix = f"blk.{settings['num_hidden_layers']}."
    out: dict[str, np.ndarray] = {}

    def put(target: str, value: torch.Tensor) -> None:
        out[target] = value.float().contiguous().numpy()

    layer(put, state, "layer.", prefix, settings)
    hyper_connection(put, state, "mixer.", prefix + "nextn.hc_head_")
    put(prefix + "nextn.enorm.weight", state["enorm.weight"] + 1)
    put(prefix + "nextn.hnorm.weight", state["hnorm.weight"] + 1)
    put(prefix + "nextn.eh_proj.weight", torch.cat((state["fc_embedding.weight"], state["fc_hidden.weight"]), 1))
    return out
