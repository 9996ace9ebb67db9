"""Looking for damage that sizes cannot show: block scales that are not finite, holes, wrong bytes.

A quantised file with a NaN scale in one expert answers well until a prompt routes to that expert. Each type keeps its
scales elsewhere, so the scan decodes every block and looks at the weights, which serves all types alike.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from strata.formats import dequantise
from strata.gguf.directory import TensorDirectory
from strata.gguf.tensors import TensorInfo

CHUNK = 1 << 18  # weights decoded at a time

Progress = Callable[[int, int], None]  # called with (bytes done, bytes in all) after each chunk


@dataclass(frozen=True, slots=True)
class BadBlocks:
    """Blocks of one tensor, or of one expert of it, that hold NaN or infinite weights.

    Attributes:
        tensor: its name.
        expert: index in the first dimension of three or four; None for a tensor without experts.
        first_row: first row hit, counted inside the expert.
        last_row: last row hit.
        blocks: how many blocks; for the float types a block is one weight.
    """

    tensor: str
    expert: int | None
    first_row: int
    last_row: int
    blocks: int

    def __str__(self) -> str:
        where = self.tensor if self.expert is None else f"{self.tensor}, expert {self.expert}"
        rows = f"row {self.first_row}" if self.first_row == self.last_row else f"rows {self.first_row}-{self.last_row}"
        return f"{where}, {rows}: {self.blocks} blocks with values that are not finite"


@dataclass(frozen=True, slots=True)
class Hole:
    """Bytes of a tensor that were never written, so read as zero: the mark of a broken-off download."""

    tensor: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.tensor}: {self.nbytes} bytes were never written; get the file again"


def find_bad_blocks(
    directory: TensorDirectory, names: Iterable[str] | None = None, progress: Progress | None = None
) -> list[BadBlocks]:
    """Decode all tensors, or those named, and report blocks with non-finite weights.

    Memory stays within a few MiB whatever the size of the model; the time is that of reading and decoding it.
    """
    chosen = [directory.info(name) for name in (directory.tensors if names is None else names)]
    total, done = sum(info.nbytes for info in chosen), 0
    found: list[BadBlocks] = []
    for info in chosen:
        experts: dict[int, BadBlocks] = {}
        for nbytes, bad in _scan(directory, info):
            _count(info, bad, experts)
            done += nbytes
            if progress:
                progress(done, total)
        found += experts.values()
    return found


def _scan(directory: TensorDirectory, info: TensorInfo) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """(bytes read, numbers of bad blocks in the tensor) for each chunk."""
    file, size, step = directory.file(info), info.type.bytes, CHUNK // info.type.weights
    blocks = info.nbytes // size
    for start in range(0, blocks, step):
        raw = np.empty((min(step, blocks - start), size), np.uint8)
        # Read, not mapped: a failing disk is an error then, and the process does not seem to grow with the file.
        file.read_into(raw, info.offset + start * size)
        yield raw.nbytes, start + np.flatnonzero(~np.isfinite(dequantise(info.type, raw)).all(axis=1))


def _count(info: TensorInfo, bad: NDArray[np.intp], experts: dict[int, BadBlocks]) -> None:
    """Add bad blocks, in rising order, to what is known of their experts."""
    rows = bad // (info.shape[-1] // info.type.weights)
    rows_each = prod(info.shape[1:-1]) if len(info.shape) > 2 else prod(info.shape[:-1])
    for expert in np.unique(rows // rows_each).tolist():
        hit = rows[rows // rows_each == expert] - expert * rows_each
        known = experts.get(expert)
        experts[expert] = BadBlocks(
            info.name,
            expert if len(info.shape) > 2 else None,
            known.first_row if known else int(hit[0]),
            int(hit[-1]),
            len(hit) + (known.blocks if known else 0),
        )


def find_holes(directory: TensorDirectory) -> list[Hole]:
    """Tensors that lie partly in a hole of their file. Instant; a file system that keeps no such record finds none."""
    holes = []
    for info in directory.tensors.values():
        end = info.offset + info.nbytes
        missing = sum(stop - start for start, stop in directory.file(info).holes(info.offset, end))
        if missing:
            holes.append(Hole(info.name, missing))
    return holes


def checksums(directory: TensorDirectory, progress: Progress | None = None) -> dict[str, str]:
    """SHA-256 of each file, by file name, to compare with what the publisher lists."""
    total, done = sum(file.size for file in directory.data_files), 0
    digests = {}
    for file in directory.data_files:
        digest, buffer = hashlib.sha256(), np.empty(1 << 20, np.uint8)
        for start in range(0, file.size, len(buffer)):
            piece = buffer[: file.size - start]
            file.read_into(piece, start)
            digest.update(piece.data)
            done += len(piece)
            if progress:
                progress(done, total)
        digests[file.path.name] = digest.hexdigest()
    return digests
