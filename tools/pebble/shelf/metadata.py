"""The metadata of Pebble's files (gguf-tensors specification, section 2)."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from pebble.data.vocabulary import ADDED, BASE, ENDOFTEXT, IM_END
from pebble.net.hashing import constants
from pebble.shape import Shape

_CONTROL, _USER_DEFINED, _NORMAL = 3, 4, 1


def _dimensions(shape: Shape) -> dict[str, Any]:
    table = constants(shape)
    names = [text for text, _ in ADDED]
    ratios = [shape.ratio if shape.is_qsa(i) else 0 for i in range(shape.L)]
    return {
        "context_length": shape.context,
        "embedding_length": shape.H,
        "block_count": shape.L + 1,
        "nextn_predict_layers": 1,
        "attention.head_count": shape.nh,
        "attention.head_count_kv": shape.nkv,
        "attention.key_length": shape.hd,
        "attention.value_length": shape.hd,
        "attention.layer_norm_rms_epsilon": shape.eps,
        "rope.dimension_count": shape.rotated,
        "rope.dimension_sections": np.array([*shape.sections, 0], np.int32),
        "rope.freq_base": shape.theta,
        "expert_count": shape.E,
        "expert_used_count": shape.topk,
        "expert_feed_forward_length": shape.I,
        "expert_shared_feed_forward_length": shape.shared,
        "full_attention_interval": 4,
        "ssm.conv_kernel": shape.conv,
        "ssm.state_size": shape.d,
        "ssm.group_count": shape.nk,
        "ssm.time_step_rank": shape.nv,
        "ssm.inner_size": shape.nv * shape.d,
        "hyper_connection.count": shape.S,
        "hyper_connection.low_rank": shape.r,
        "attention.indexer.head_count": shape.ih,
        "attention.indexer.key_length": shape.id,
        "attention.indexer.top_k": shape.budget,
        "attention.compress_ratios": np.array([*ratios, 0], np.int32),
        "ple.layers": np.array([1], np.int32),
        "ple.ngram_size": shape.n,
        "ple.heads_per_ngram": shape.ngram_heads,
        "ple.conv_kernel": shape.conv,
        "ple.eos_token_id": shape.eos,
        "ple.image_token_id": BASE + names.index("<|image_pad|>"),
        "ple.layer_multipliers": np.array(table.multipliers, np.uint64),
        "ple.head_offsets": np.array(table.offsets, np.uint64),
        "ple.head_vocab_sizes": np.array(table.sizes, np.uint64),
        "embedding_length_per_layer_input": shape.ngram_width,
    }


def _tokenizer(path: Path) -> dict[str, Any]:
    """Entries in the byte alphabet, merges and types, from a tokenizer.json."""
    model = json.loads(path.read_text("utf-8"))["model"]
    entries = sorted(model["vocab"], key=model["vocab"].__getitem__)
    if len(entries) != BASE:
        raise ValueError(f"the vocabulary has {len(entries)} base entries, not {BASE}")
    kinds = [_NORMAL] * BASE + [_CONTROL if special else _USER_DEFINED for _, special in ADDED]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen35",
        "tokenizer.ggml.tokens": [*entries, *(text for text, _ in ADDED)],
        "tokenizer.ggml.token_type": np.array(kinds, np.int32),
        "tokenizer.ggml.merges": [" ".join(pair) for pair in model["merges"]],
        "tokenizer.ggml.eos_token_id": IM_END,
        "tokenizer.ggml.bos_token_id": ENDOFTEXT,
        "tokenizer.ggml.padding_token_id": ENDOFTEXT,
        "tokenizer.ggml.add_bos_token": False,
    }


def metadata(shape: Shape, tokenizer: Path, template: str, file_type: int) -> dict[str, Any]:
    """All keys; ``file_type`` is llama.cpp's number of the mix (7 mostly Q8_0, 26 mostly IQ3_S)."""
    return {
        "general.architecture": "qwen4exp",
        "general.type": "model",
        "general.name": "Pebble",
        "general.description": "A very small model that ships with Strata to show that everything works.",
        "general.license": "apache-2.0",
        "general.quantization_version": 2,
        "general.file_type": file_type,
        **{f"qwen4exp.{key}": value for key, value in _dimensions(shape).items()},
        **_tokenizer(tokenizer),
        "tokenizer.chat_template": template,
    }
