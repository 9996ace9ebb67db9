"""Where an expert's three matrices lie in its slot.

A slot is one run of bytes, so an expert moves with one copy. The array of slots may be in VRAM or in pinned RAM:
kernels read both.
"""

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from strata.ops.planes import layout, pack

_SLOT = 512  # bytes: slots start where a warp's widest load does


@dataclass(frozen=True, slots=True)
class SlotLayout:
    """Types and sizes of an expert: gate and up ``[I, H]``, down ``[H, I]``.

    Attributes:
        gate: block type of the gate matrix.
        up: of the up matrix.
        down: of the down matrix.
        hidden: H.
        inner: I.
    """

    gate: str
    up: str
    down: str
    hidden: int
    inner: int

    @property
    def up_at(self) -> int:
        """Byte at which up starts."""
        return _nbytes(self.gate, self.inner, self.hidden)

    @property
    def down_at(self) -> int:
        """Byte at which down starts."""
        return self.up_at + _nbytes(self.up, self.inner, self.hidden)

    @property
    def nbytes(self) -> int:
        """Bytes of a slot."""
        end = self.down_at + _nbytes(self.down, self.hidden, self.inner)
        return -(-end // _SLOT) * _SLOT

    def fill(self, slot: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> None:
        """Repack one expert's GGUF blocks into ``slot``, ``uint8 [nbytes]``."""
        end = self.down_at + _nbytes(self.down, self.hidden, self.inner)
        pack(self.gate, gate, self.hidden, slot[: self.up_at])
        pack(self.up, up, self.hidden, slot[self.up_at : self.down_at])
        pack(self.down, down, self.inner, slot[self.down_at : end])

    @property
    def parts(self) -> tuple[slice, slice, slice]:
        """Where gate, up and down lie in a slot."""
        end = self.down_at + _nbytes(self.down, self.hidden, self.inner)
        return slice(0, self.up_at), slice(self.up_at, self.down_at), slice(self.down_at, end)


@dataclass(frozen=True, slots=True)
class Slots:
    """An array of slots and which expert is where.

    Attributes:
        layout: of a slot.
        data: ``uint8 [slots, layout.nbytes]``.
        slot_of: ``int32 [E]`` on the device, negative for an expert without a slot.
        shared: slot of the shared expert, or -1 if it is computed elsewhere.
        scales: of whole matrices (NVFP4), ``float32 [3, E + 1]`` for gate, up, down, the shared expert last; or None.
    """

    layout: SlotLayout
    data: Tensor
    slot_of: Tensor
    shared: int = -1
    scales: Tensor | None = None

    @property
    def experts(self) -> int:
        """E."""
        return len(self.slot_of)


def empty(layout_: SlotLayout, count: int, experts: int, device: torch.device | str, *, pinned: bool = False) -> Slots:
    """Slots with nothing in them.

    Args:
        layout_: of a slot.
        count: how many slots.
        experts: E.
        device: of the table of slots, and of the slots unless they are pinned.
        pinned: slots in pinned RAM.
    """
    where = {"device": "cpu", "pin_memory": True} if pinned else {"device": device}
    data = torch.empty((count, layout_.nbytes), dtype=torch.uint8, **where)
    return Slots(layout_, data, torch.full((experts,), -1, dtype=torch.int32, device=device))


@cache
def _nbytes(name: str, rows: int, width: int) -> int:
    """Of a matrix; a layer of a prompt asks for some dozens."""
    return layout(name).nbytes(rows, width)
