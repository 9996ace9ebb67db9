"""Experts from RAM to slots: what `kernels.bring` needs to know of a layer, and its launch."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
import triton
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import FormatError
from strata.formats import by_name
from strata.ops.dependent import launch
from strata.ops.experts.slots import SlotLayout
from strata.ops.planes import layout
from strata.ops.tiers import repack
from strata.ops.tiers.kernels import bring

WARPS = 4

PER_PROCESSOR = 1
"""Programs for each multiprocessor, of 4 warps and 32 registers a thread: a sixteenth of its warps. A program has a
piece of 3 to 5 KB on its way, and makes planes of it in some 2 us. On an H200 they bring 50 GB/s, and so do 2 to 8:
more only wait in line before the link, and whoever else reads over it behind them (`bench/gpu_bring.py`)."""

GATE_UP, DOWN = (0, 1), (2,)
"""Parts of experts that may be brought by themselves."""

INTERPRETED = 3
"""Programs where the interpreter runs them one after the other."""

ALIGNED = 16
"""Bytes that a thread takes from RAM at once; experts begin at multiples of it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A layer's experts in RAM, as the file stores them.

    Attributes:
        layout: of a slot.
        base: uint8, some memory that the device reaches; 16-byte aligned.
        places: int64 [E, 3] on the device, where gate, up and down begin, in units of 16 bytes from `base` on.
    """

    layout: SlotLayout
    base: Tensor
    places: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of an expert in the file."""
        return sum(rows * size for rows, size in stored(self.layout))

    def launch(
        self,
        slots: Tensor,
        stage: Tensor,
        experts: Tensor,
        places: Tensor,
        totals: Tensor,
        most: int,
        *,
        at: Tensor | None = None,
        base: Tensor | None = None,
        programs: int | None = None,
        parts: tuple[int, ...] = GATE_UP + DOWN,
    ) -> None:
        """Bring experts.

        Args:
            slots: ``uint8 [slots, layout.nbytes]`` on the device.
            stage: ``uint8 [at least most * nbytes]`` there.
            experts: int32, which.
            places: int32, to which slots.
            totals: int32, how many; at most `most`.
            most: see there.
            at: int64 [n, 3], units as in `places`: where they lie, and `experts` are numbers in this list. None for the
                layer's own places.
            base: what `at` counts from, if not from `base` of the source: memory of the device, as a rule. It may be
                `stage`, where each expert's parts follow one another, the experts in the order of `experts`.
            programs: how many share it out at most; None for `PER_PROCESSOR` on each multiprocessor.
            parts: of the experts: all, `GATE_UP` or `DOWN`. The others stay as they are.
        """
        device, kind = slots.device, self.layout
        chosen, where = constants(kind, parts), self.places if at is None else at
        bring[(min(pieces(kind, parts) * most, programs or programs_of(device)),)](
            self.base if base is None else base, where, stage, self.nbytes, slots, slots.stride(0), kind.up_at,
            kind.down_at, experts, places, totals, **chosen, num_warps=WARPS, num_stages=1, **launch(device),
        )  # fmt: skip


def units(addresses: NDArray[np.int64], base: Tensor) -> NDArray[np.int64]:
    """Addresses, multiples of 16, as the device takes them: in units of 16 bytes from `base` on."""
    return (addresses - base.data_ptr()) // ALIGNED


def sources(
    layouts: list[SlotLayout],
    addresses: NDArray[np.int64],
    base: Tensor,
    device: torch.device,
    places: Tensor | None = None,
) -> list[Source]:
    """Of every layer.

    Args:
        layouts: of a slot, by layer.
        addresses: int64 [L, E, 3].
        base: uint8, some memory that the device reaches.
        device: where slots are.
        places: int64 [L, E, 3] on the device, where sources look from now on; None for memory of their own.

    Raises:
        FormatError: memory that words of 16 bytes do not reach.
    """
    offsets = addresses - base.data_ptr()
    odd = {rows * size for kind in layouts for rows, size in stored(kind) if rows * size % ALIGNED}
    if odd or (offsets % ALIGNED).any() or base.data_ptr() % ALIGNED:
        raise FormatError(f"experts in RAM begin at multiples of {ALIGNED} bytes and are as long ({sorted(odd)})")
    there = torch.from_numpy(units(addresses, base)).to(device)
    if places is not None:
        places.copy_(there)
        there = places
    return [Source(kind, base, here) for kind, here in zip(layouts, there, strict=True)]


def stored(kind: SlotLayout) -> tuple[tuple[int, int], ...]:
    """Rows and bytes of a row of gate, up and down in the file."""
    return tuple((rows, by_name(name).row_bytes(width)) for name, rows, width in _shapes(kind))


def pieces(kind: SlotLayout, parts: tuple[int, ...]) -> int:
    """That parts of an expert are brought in."""
    return sum(_pieces(kind, parts))


@cache
def programs_of(device: torch.device, each: int = PER_PROCESSOR) -> int:
    """Programs of a launch at most, with so many for each multiprocessor."""
    if device.type != "cuda":
        return INTERPRETED
    return each * int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def constants(kind: SlotLayout, parts: tuple[int, ...]) -> dict[str, Any]:
    """Constants of the kernel that brings some parts."""
    shapes, many, each = _shapes(kind), _together(kind), _pieces(kind, parts)
    blocks = [by_name(name).bytes for name, _, _ in shapes]
    codes = [repack.code(repack.recipes(name), layout(name).offsets(rows, width)[:-1]) for name, rows, width in shapes]
    return {
        "GATE_PIECES": each[0], "UP_PIECES": each[1], "DOWN_PIECES": each[2],
        "BLOCKS": tuple(rows * width // by_name(name).weights for name, rows, width in shapes),
        "BLOCK": tuple(blocks), "TOGETHER": tuple(many),
        "ROOM": tuple(triton.next_power_of_2(count * size // 4) for count, size in zip(many, blocks, strict=True)),
        "GATE": codes[0], "UP": codes[1], "DOWN": codes[2],
    }  # fmt: skip


def _shapes(kind: SlotLayout) -> tuple[tuple[str, int, int], ...]:
    wide, tall = (kind.inner, kind.hidden), (kind.hidden, kind.inner)
    return (kind.gate, *wide), (kind.up, *wide), (kind.down, *tall)


def _together(kind: SlotLayout) -> list[int]:
    widest = 1 << 16 if triton.knobs.runtime.interpret else repack.WIDEST
    return [repack.together(name, widest) for name in (kind.gate, kind.up, kind.down)]


def _pieces(kind: SlotLayout, parts: tuple[int, ...]) -> list[int]:
    """Of gate, up and down; none of what is not among the parts."""
    counts = [rows * width // by_name(name).weights for name, rows, width in _shapes(kind)]
    together = _together(kind)
    return [-(-counts[part] // together[part]) if part in parts else 0 for part in range(len(counts))]
