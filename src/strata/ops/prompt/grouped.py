"""Experts of a prompt: the plan and the launches around `strata.ops.prompt.experts`."""

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
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
    """Pairs of row and expert, sorted by rank of the expert; see `strata.ops.prompt.plan.arrange`.

    Attributes:
        rows: there is room for.
        topk: experts a row visits.
        tile: most pairs of a tile.
        most: tiles there can be.
        pairs, tile_expert, tile_first, tile_size: int32.
        starts: int32 [2, E + 1], of every rank the first tile and the first pair.
    """

    rows: int
    topk: int
    tile: int
    most: int
    pairs: Tensor
    tile_expert: Tensor
    tile_first: Tensor
    tile_size: Tensor
    starts: Tensor

    @property
    def lists(self) -> tuple[Tensor, ...]:
        """As the products take them."""
        return self.pairs, self.tile_expert, self.tile_first, self.tile_size, self.starts

    @property
    def all(self) -> "Span":
        """All of its experts."""
        return Span(0, self.starts.shape[1] - 1, self.most, self.rows * self.topk)

    def some(self, low: int, high: int, count: int) -> "Span":
        """Experts of some ranks, of which so many can be visited."""
        pairs = self.rows * self.topk
        return Span(low, high, min(self.most, min(count, pairs) + pairs // self.tile), min(pairs, count * self.rows))

    def pairs_of(self, span: "Span") -> tuple[int, int]:
        """Where in `starts` it is said which pairs are a span's."""
        ranks = self.starts.shape[1]
        return ranks + span.low, ranks + span.high


class Span(NamedTuple):
    """Experts of a plan that are computed together.

    Attributes:
        low, high: ranks from the first on, and before the last.
        most: tiles they can have.
        pairs: they can have.
    """

    low: int
    high: int
    most: int
    pairs: int


def visits(ids: Tensor, counts: Tensor, number: int) -> Tensor:
    """How many of the choices ``int32 [room, topk]`` of ``counts`` rows each of ``number`` experts has: int32 [E]."""
    sizes = torch.empty(number, dtype=torch.int32, device=ids.device)
    plan.count[(number,)](ids, counts, ids.shape[1], sizes, BLOCK=_CHOICES, num_warps=4)
    return sizes


def planned(ids: Tensor, counts: Tensor, sizes: Tensor, rank: Tensor | None = None) -> Plan:
    """Sort choices by expert.

    Args:
        ids: ``int32 [room, topk]``.
        counts: int32 [1], rows there are.
        sizes: of every expert, as `visits` says.
        rank: int32 [E], in which order experts come; None for that of their numbers.
    """
    (room, topk), device, number = ids.shape, ids.device, len(sizes)
    tile = expert_tile(arch(device), room, topk, number)
    most = min(number, room * topk) + room * topk // tile

    def ints(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=device)

    found = Plan(room, topk, tile, most, ints(room * topk), ints(most), ints(most), ints(most), ints(2, number + 1))
    plan.arrange[(number,)](
        ids, counts, topk, number, sizes, _numbers(number, device) if rank is None else rank, *found.lists,
        TILE=tile, ROOM=max(16, 1 << (number - 1).bit_length()), BLOCK=_CHOICES, num_warps=4,
    )  # fmt: skip
    return found


@cache
def _numbers(count: int, device: torch.device) -> Tensor:
    return torch.arange(count, dtype=torch.int32, device=device)


def _ordered(x: Tensor, bounds: Tensor, rows: int, some: tuple[int, int] | None, out: Tensor | None = None) -> Tensor:
    """Rows in the order of the products.

    Args:
        x: float16 [T, K].
        bounds: int32, which of them there are.
        rows: of them at most.
        some: numbers of the bounds between which they lie; None if all before the first bound are there.
        out: where they go; None for memory of their own.
    """
    room, width = x.shape
    out = ordered_room(room, width, x.device) if out is None else out
    low, high = some or (0, 0)
    order[(max(1, -(-rows // 16)), -(-width // 128))](
        x, bounds, out, width, low, high, SPAN=some is not None, ROWS=16, num_warps=4
    )
    return out


def ordered_room(rows: int, width: int, device: torch.device) -> Tensor:
    """Memory for so many rows in the order in which `rows_of` takes them."""
    return torch.empty((rows, -(-width // 128) * 128), dtype=torch.float16, device=device)


def ordered(x: Tensor, counts: Tensor, out: Tensor | None = None) -> Tensor:
    """Rows in the order in which `rows_of` takes them, in `out` if that is given."""
    return _ordered(x, counts, len(x), None, out)


def rows_of(slots: Slots, x: Tensor, grouped: Plan, y: Tensor | None = None, span: Span | None = None) -> Tensor:
    """Rows of all pairs of a plan, without the router's weights.

    Args:
        slots: experts; all that are computed must have a slot.
        x: rows, `ordered`.
        grouped: the plan.
        y: float16 [room * topk, H], where they go, if there is such a place already; the rest of it is left alone.
        span: experts of the plan that are computed; None for all.
    """
    kind, device, pairs = slots.layout, x.device, grouped.rows * grouped.topk
    span = grouped.all if span is None else span
    h = torch.empty((pairs, kind.inner), dtype=torch.float16, device=device)
    stride = slots.data.stride(0)
    scaled, tall = slots.scales is not None, int(experts.ROWS.value)
    scales = [slots.slot_of] * 3 if slots.scales is None else list(slots.scales)
    wide, narrow = kind.hidden // 32, kind.inner // 32
    options = expert_options(arch(device), grouped.tile)
    experts.gate_up[(-(-kind.inner // tall), span.most)](
        slots.data, stride, kind.up_at, codewords(kind.gate, device), codewords(kind.up, device), scales[0],
        scales[1], x, h, slots.slot_of, *grouped.lists, span.low, span.high, kind.inner, wide, grouped.topk,
        GATE=kind.gate, UP=kind.up, SCALED=scaled, EVEN=wide % 4 == 0, BM=grouped.tile, **options,
    )  # fmt: skip
    h_ordered = _ordered(h, grouped.starts, span.pairs, grouped.pairs_of(span))
    del h
    y = torch.empty((pairs, kind.hidden), dtype=torch.float16, device=device) if y is None else y
    experts.down[(-(-kind.hidden // tall), span.most)](
        slots.data, stride, kind.down_at, codewords(kind.down, device), scales[2], h_ordered, y, slots.slot_of,
        *grouped.lists, span.low, span.high, kind.hidden, narrow,
        KIND=kind.down, SCALED=scaled, EVEN=narrow % 4 == 0, BM=grouped.tile, **options,
    )  # fmt: skip
    return y


def combined(y: Tensor, shares: Tensor, shared: Tensor, shared_shares: Tensor, counts: Tensor) -> Tensor:
    """The weighted sum of each row's experts in the router's order, the shared one last: float32 [room, H]."""
    (room, topk), width = shares.shape, y.shape[1]
    out = torch.empty((room, width), dtype=torch.float32, device=y.device)
    block = 512
    experts.combine[(-(-width // block), room)](
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
