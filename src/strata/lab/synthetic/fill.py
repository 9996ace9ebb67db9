"""Random blocks. Bytes come from one pool a type and deviation, from a new place for every tensor."""

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from strata.formats import by_name
from strata.formats.block import U8, BlockType
from strata.gguf import TensorData
from strata.lab.synthetic.shapes import Fill, Planned

POOL = 24 << 20
"""Bytes of a pool."""

SCALE_AT = {"Q6_K": 208}
"""Where a block's float16 scale lies; at its beginning where nothing is said."""

CENTRE = {"Q4_K": 7.5, "Q5_K": 15.5}
"""Steps from the least weight to the middle; the scale of minimums lies behind the other."""


class Filler:
    """Makes the bytes of planned tensors.

    Args:
        seed: of all randomness.
    """

    def __init__(self, seed: int) -> None:
        self._dice = np.random.default_rng(seed)
        self._pools: dict[tuple[str, float], U8] = {}

    def tensor(self, planned: Planned) -> TensorData:
        """The tensor, its random bytes made when they are written."""
        return TensorData(planned.name, planned.shape, by_name(planned.type), self._data(planned))

    def _data(self, planned: Planned) -> U8 | Callable[[], Iterator[U8]]:
        count = prod(planned.shape)
        match planned.fill:
            case Fill.ONES:
                values = np.ones(count, np.float32)
            case Fill.DECAY:
                values = -np.exp(self._dice.uniform(-1.0, 2.0, count).astype(np.float32))
            case Fill.STEP:
                values = self._dice.uniform(-4.0, 0.0, count).astype(np.float32)
            case Fill.RANDOM:
                return lambda: self._pieces(planned)
        return values.view(np.uint8)

    def _pieces(self, planned: Planned) -> Iterator[U8]:
        kind = by_name(planned.type)
        pool = self._pool(kind, planned.deviation)
        left = kind.row_bytes(planned.shape[-1]) * prod(planned.shape[:-1])
        while left:
            first = int(self._dice.integers(len(pool) // kind.bytes)) * kind.bytes
            piece = pool[first : first + left]
            left -= len(piece)
            yield piece

    def _pool(self, kind: BlockType, deviation: float) -> U8:
        key = (kind.name, deviation)
        if key not in self._pools:
            self._pools[key] = self._blocks(kind, deviation, POOL // kind.bytes).reshape(-1)
        return self._pools[key]

    def _blocks(self, kind: BlockType, deviation: float, count: int) -> U8:
        """uint8 [count, bytes]."""
        if kind.weights == 1:
            values = self._dice.standard_normal(count, np.float32) * np.float32(deviation)
            if kind.name == "BF16":
                return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
            return values.astype(np.float16 if kind.name == "F16" else np.float32).view(np.uint8)
        blocks = self._dice.integers(0, 256, (count, kind.bytes), dtype=np.uint8)
        sample = blocks[:1024].copy()
        _scale(kind, sample, np.ones(len(sample), np.float32))
        around = self._dice.uniform(0.8, 1.2, count).astype(np.float32)
        _scale(kind, blocks, around * np.float32(deviation / kind.dequantise(sample).std()))
        return blocks


def _scale(kind: BlockType, blocks: U8, scales: np.ndarray[tuple[int], np.dtype[np.float32]]) -> None:
    """Set every block's scale."""
    at = SCALE_AT.get(kind.name, 0)
    blocks[:, at : at + 2] = scales.astype(np.float16)[:, None].view(np.uint8)
    if kind.name in CENTRE:
        minimums = scales * np.float32(CENTRE[kind.name])
        blocks[:, at + 2 : at + 4] = minimums.astype(np.float16)[:, None].view(np.uint8)
