"""Layers of experts in a file, and RAM that holds some of them."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from strata.memory.arena import SlotShape, Stack
from strata.memory.arena.shape import Expert
from strata.memory.reads import Readers, ReadFile
from strata.memory.tier import Stock
from strata.ops.tiers import ram as rams
from support.faults import Faulty
from support.launch import NATIVE


def written(moes: Sequence[Any], path: Path) -> list[Expert]:
    """Write experts as a model's file has them, one matrix of a layer after the other."""
    at, places = 32, []
    with path.open("wb") as file:
        file.write(bytes(at))
        for moe in moes:
            mine = []
            for part in (moe.gate, moe.up, moe.down):
                mine.append((at, part.raw[0].nbytes, len(part.raw)))
                file.write(part.raw.tobytes())
                at += part.raw.nbytes
            places.append(mine)
    source = ReadFile(path)
    return [tuple(Stack(source, first, size, size, count) for first, size, count in mine) for mine in places]


def bytes_for(layers: Sequence[Expert], share: float) -> int:
    """Memory for a share of all experts, at least one of each size, and for what is nobody's."""
    shapes = [SlotShape(tuple(stack.nbytes for stack in expert)) for expert in layers]
    each = layers[0][0].experts
    most = max(max(shape.parts) for shape in shapes)
    total = sum(shape.nbytes for shape in shapes) * each
    return -(-most // 4096) * 4096 + max(round(share * total), sum(shape.nbytes for shape in set(shapes)))


class Disk:
    """Makes RAM for `tier_of`, and keeps what it is made of.

    Attributes:
        stock: what was made.
    """

    def __init__(self, path: Path, share: float, decide: Callable[..., int] | None = None, **more: Any) -> None:
        self._path, self._share, self._more = path, share, more
        self.pool = Readers(2, Faulty(decide or (lambda _call, _file, n, _at: n)).functions)
        self.stock: Any = None

    def __call__(self, moes: list[Any]) -> rams.Ram:
        """As `strata.ops.tiers.ram.mapped`."""
        layers = written(moes, self._path)
        self.stock = Stock(layers, self.pool, bytes_for(layers, self._share), **self._more)
        return rams.stocked(self.stock, on_gpu=NATIVE)

    def close(self) -> None:
        """Nobody computes any more."""
        if self.stock is not None:
            self.stock.close()
        self.pool.close()


@contextlib.contextmanager
def disk(path: Path, share: float, decide: Callable[..., int] | None = None, **more: Any) -> Iterator[Disk]:
    """RAM for a share of the experts, closed at the end."""
    found = Disk(path, share, decide, **more)
    try:
        yield found
    finally:
        found.close()
