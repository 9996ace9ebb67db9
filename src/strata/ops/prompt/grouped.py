"""Experts of a prompt: the plan and the launches around `strata.ops.prompt.experts`."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from strata.ops.experts.slots import Slots
from strata.ops.matvec.tables import codewords
from strata.ops.matvec.triton import PlaneMatrix, arch
from strata.ops.prompt import experts, plan
from strata.ops.prompt.matrices import OPTIONS
from strata.ops.prompt.order import order
from strata.ops.prompt.tiles import expert_options, expert_tile

_CHOICES = 4096  # that a program of the plan looks at together


@dataclass(frozen=True, slots=True)
class Plan:
    """Pairs of row and expert, sorted by expert; see `strata.ops.prompt.plan.arrange`.

    Attributes:
        rows: there is room for.
        topk: experts a row visits.
        tile: most pairs of a tile.
        counts: int32 [1], how many rows there are.
        most: tiles there can be.
        pairs, tile_expert, tile_first, tile_size, totals: int32.
    """

    rows: int
    topk: int
    tile: int
    counts: Tensor
    most: int
    pairs: Tensor
    tile_expert: Tensor
    tile_first: Tensor
    tile_size: Tensor
    totals: Tensor

    @property
    def lists(self) -> tuple[Tensor, ...]:
        """As the products take them."""
        return self.pairs, self.tile_expert, self.tile_first, self.tile_size, self.totals


def planned(ids: Tensor, counts: Tensor, number: int) -> Plan:
    """Sort the choices ``int32 [room, topk]`` of ``counts`` rows among ``number`` experts."""
    (room, topk), device = ids.shape, ids.device
    tile = expert_tile(arch(device), room, topk, number)
    most = min(number, room * topk) + room * topk // tile

    def ints(size: int) -> Tensor:
        return torch.empty(size, dtype=torch.int32, device=device)

    sizes = ints(number)
    found = Plan(room, topk, tile, counts, most, ints(room * topk), ints(most), ints(most), ints(most), ints(1))
    plan.count[(number,)](ids, counts, topk, sizes, BLOCK=_CHOICES, num_warps=4)
    plan.arrange[(number,)](
        ids, counts, topk, number, sizes, *found.lists,
        TILE=tile, ROOM=max(16, 1 << (number - 1).bit_length()), BLOCK=_CHOICES, num_warps=4,
    )  # fmt: skip
    return found


def _ordered(x: Tensor, counts: Tensor, per: int) -> Tensor:
    """Rows in the order of the products."""
    rows, width = x.shape
    out = torch.empty((rows, triton.cdiv(width, 128) * 128), dtype=torch.float16, device=x.device)
    order[(triton.cdiv(rows, 16), triton.cdiv(width, 128))](x, counts, out, width, PER=per, ROWS=16, num_warps=4)
    return out


def ordered(x: Tensor, counts: Tensor) -> Tensor:
    """Rows in the order in which `rows_of` takes them."""
    return _ordered(x, counts, 1)


def rows_of(slots: Slots, x: Tensor, grouped: Plan, y: Tensor | None = None) -> Tensor:
    """Rows of all pairs of a plan, without the router's weights.

    Args:
        slots: experts; all that the plan names must have a slot.
        x: rows, `ordered`.
        grouped: the plan.
        y: float16 [room * topk, H], where they go, if there is such a place already; the rest of it is left alone.
    """
    kind, device, pairs = slots.layout, x.device, grouped.rows * grouped.topk
    h = torch.empty((pairs, kind.inner), dtype=torch.float16, device=device)
    y = torch.empty((pairs, kind.hidden), dtype=torch.float16, device=device) if y is None else y
    stride = slots.data.stride(0)
    scaled, tall = slots.scales is not None, int(experts.ROWS.value)
    scales = [slots.slot_of] * 3 if slots.scales is None else list(slots.scales)
    wide, narrow = kind.hidden // 32, kind.inner // 32
    options = expert_options(arch(device), grouped.tile)
    experts.gate_up[(triton.cdiv(kind.inner, tall), grouped.most)](
        slots.data, stride, kind.up_at, codewords(kind.gate, device), codewords(kind.up, device), scales[0],
        scales[1], x, h, slots.slot_of, *grouped.lists, kind.inner, wide, grouped.topk,
        GATE=kind.gate, UP=kind.up, SCALED=scaled, EVEN=wide % 4 == 0, BM=grouped.tile, **options,
    )  # fmt: skip
    experts.down[(triton.cdiv(kind.hidden, tall), grouped.most)](
        slots.data, stride, kind.down_at, codewords(kind.down, device), scales[2],
        _ordered(h, grouped.counts, grouped.topk), y, slots.slot_of, *grouped.lists, kind.hidden, narrow,
        KIND=kind.down, SCALED=scaled, EVEN=narrow % 4 == 0, BM=grouped.tile, **options,
    )  # fmt: skip
    return y


def among(ids: Tensor, slots: Slots) -> Tensor:
    """Choices ``int32 [room, topk]`` of experts that have a slot; others become a number that no expert has."""
    # Where launches are only noted, choices are whatever lay in memory.
    there = slots.slot_of[ids.long().clamp(0, slots.experts - 1)] >= 0
    return torch.where(there, ids, slots.experts)


def combined(y: Tensor, shares: Tensor, shared: Tensor, shared_shares: Tensor, counts: Tensor) -> Tensor:
    """The weighted sum of each row's experts in the router's order, the shared one last: float32 [room, H]."""
    (room, topk), width = shares.shape, y.shape[1]
    out = torch.empty((room, width), dtype=torch.float32, device=y.device)
    block = 512
    experts.combine[(triton.cdiv(width, block), room)](
        y, shares, shared, shared_shares, counts, out, width, topk, BLOCK=block, num_warps=4, **OPTIONS
    )
    return out


def matrices(slots: Slots, number: int) -> tuple[PlaneMatrix, PlaneMatrix, PlaneMatrix]:
    """Gate, up and down of the expert in slot ``number``."""
    kind, one = slots.layout, slots.data[number]
    scales = (None, None, None) if slots.scales is None else [x[number : number + 1] for x in slots.scales]
    wide, tall = (kind.inner, kind.hidden), (kind.hidden, kind.inner)
    shapes = (kind.gate, *wide), (kind.up, *wide), (kind.down, *tall)
    gate, up, down = (
        PlaneMatrix(*shape, one[part], scale) for shape, part, scale in zip(shapes, kind.parts, scales, strict=True)
    )
    return gate, up, down
