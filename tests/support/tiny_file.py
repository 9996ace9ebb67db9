"""The oracle's smaller tiny model as a GGUF file with a tokenizer and a chat template."""

from pathlib import Path
from typing import Any

import numpy as np

from strata.formats import by_name
from strata.gguf import TensorData, write_model
from strata.text import pebble_template
from support import tiny
from support.vocab import vocabulary_metadata


def tiny_metadata() -> dict[str, Any]:
    """All keys: 512 tokens, 16 of them padding; a context of 1024."""
    words = vocabulary_metadata(entries=470, padding=16, chat_template=pebble_template())
    return {**tiny.metadata(tiny.SETTINGS["other"]), **words}


def tiny_tensors() -> dict[str, np.ndarray]:
    """All weights, float32."""
    return tiny.tensors("other")


def write_tiny(
    path: Path,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray] | None = None,
    shards: list[list[str]] | None = None,
) -> tuple[Path, ...]:
    """Write it, or a changed one, in F32."""
    data = [
        # Bytes as they are, because a damaged file may be wanted.
        TensorData(
            name, value.shape, by_name("F32"), np.ascontiguousarray(value, np.float32).reshape(-1).view(np.uint8)
        )
        for name, value in (tiny_tensors() if tensors is None else tensors).items()
    ]
    return write_model(path, tiny_metadata() if metadata is None else metadata, data, shards=shards)
