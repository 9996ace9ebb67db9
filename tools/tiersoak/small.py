"""A model of two layers that Triton's interpreter runs in seconds: `strata.lab.synthetic` as small as kernels allow."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from strata.gguf import write_model
from strata.gguf.encode import Writable
from strata.lab.synthetic import fill
from strata.lab.synthetic.shapes import Planned, Synthetic, metadata, tensors

VOCABULARY = 288
"""All bytes, and what ends a turn."""

NARROW = {"Q4_K", "Q5_K", "Q6_K"}
"""Types whose blocks are wider than the model."""


class Small(Synthetic):
    """A recurrent layer with n-grams and one of attention; experts of two sizes, so slots of two classes."""

    hidden, streams, rank = 64, 2, 32
    heads, kv_heads, head = 2, 1, 64
    inner = 32
    gdn_keys, gdn_values, gdn_head = 1, 2, 32
    index_heads, index_head, ratio = 2, 32, 4
    ngram_width = 4

    def attention(self, layer: int) -> bool:
        """The second layer's."""
        return layer == 1


def write_small(path: Path) -> Path:
    """Write it; the same bytes every time."""
    shape = Small(layers=2, experts=12, used=2, vocabulary=VOCABULARY, ngram_rows=100, gate_up="Q8_0", down="IQ4_NL")
    filler = fill.Filler(0)
    write_model(path, _metadata(shape), [filler.tensor(_narrow(planned)) for planned in tensors(shape)])
    return path


def _metadata(shape: Small) -> dict[str, Writable]:
    own: dict[str, Writable] = {
        "ple.layers": np.array([0], np.uint32),
        "context_length": 512,
        "attention.indexer.top_k": 16,
        "full_attention_interval": 2,
        "rope.dimension_count": 16,
        "rope.dimension_sections": np.array([3, 3, 2, 0], np.int32),
    }
    return metadata(shape) | {f"qwen4exp.{key}": value for key, value in own.items()}


def _narrow(planned: Planned) -> Planned:
    """The same in a type that fits its width; the second layer's experts are the larger ones."""
    kind = planned.type
    if planned.name == "per_layer_token_embd.weight":
        kind = "F32"
    elif kind in NARROW or planned.name == "blk.1.ffn_down_exps.weight":
        kind = "Q8_0"
    return replace(planned, type=kind, name=planned.name.replace("blk.1.ple", "blk.0.ple"))
