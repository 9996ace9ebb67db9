"""Model files of any size without weights: headers as they should be, and a hole where the tensors are."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from strata.formats import by_name
from strata.gguf.header import padded
from strata.gguf.shards import shard_name
from strata.gguf.writer import TensorData, _File

ALIGNMENT = 32
NOTHING = np.empty(0, np.uint8)


def hollow(
    path: Path, metadata: Mapping[str, Any], shards: Sequence[Sequence[tuple[str, tuple[int, ...], str]]]
) -> Path:
    """Write a split set; tensors are (name, shape, type). The first file's path."""
    total = sum(map(len, shards))
    paths = []
    for index, tensors in enumerate(shards):
        split = {
            "split.no": np.uint16(index),
            "split.count": np.uint16(len(shards)),
            "split.tensors.count": np.int32(total),
        }
        one = path.with_name(shard_name(path.name.removesuffix(".gguf"), index + 1, len(shards)))
        data = [TensorData(name, shape, by_name(kind), NOTHING) for name, shape, kind in tensors]
        keys = (dict(metadata) if index == 0 else {}) | split
        text = _File(one, keys, data)._header(ALIGNMENT)
        size = padded(len(text), ALIGNMENT) + sum(padded(tensor.nbytes, ALIGNMENT) for tensor in data)
        with one.open("wb") as out:
            out.write(text)
            out.truncate(size)
        paths.append(one)
    return paths[0]
