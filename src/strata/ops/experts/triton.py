"""Routed experts of a window of 1 to 8 rows on the GPU, with the judge's bytes.

**Idea.** `plan` turns the router's choice into a list of distinct experts and, for each, the pairs (row, place) that
chose it, all in device memory. `gate_up` reads each expert's gate and up once for all of its pairs and leaves
``silu(gate) * up`` in float32; its own small launch quantises that; `down` reads each down matrix once and leaves
whole rows; `combine` weighs and adds them in the router's order, the shared expert last. Nothing depends on which
expert lies where or how many rows share it.

**The two numbers.** Bytes: 2,176,000 an expert (IQ3_XXS and IQ4_NL), times the distinct experts: 10 for one row,
about 30 for four. Instructions a weight as in `strata.ops.matvec.triton`, at T = pairs of the expert, 1.3 on average
for four rows.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.ops.dependent import launch
from strata.ops.experts.kernels import combine_kernel, down_kernel, gate_up_kernel
from strata.ops.experts.plan import plan_kernel
from strata.ops.experts.slots import Slots
from strata.ops.experts.variants import VARIANTS
from strata.ops.matvec.tables import codewords
from strata.ops.matvec.triton import MAX_ROWS, OPTIONS, Activations, arch, quantise
from strata.ops.variants import Tile, resolve

_COMBINED = 256  # outputs of a program of the combine


@dataclass(frozen=True, slots=True)
class Plan:
    """Distinct experts of a window; see `strata.ops.experts.plan.plan_kernel` for the fields.

    Attributes:
        rows: T.
        topk: experts a row visits.
        pairs_in_all: pairs that have a place in h and y: T * topk, and T more with the shared expert.
        experts: ``int32 [M]``.
        slots: ``int32 [M]``.
        counts: ``int32 [M]``.
        pairs: ``int32 [M, 8]``.
        totals: resident and missing experts, ``int32 [2]``.
        most: experts there can be, with the shared one.
    """

    rows: int
    topk: int
    pairs_in_all: int
    experts: Tensor
    slots: Tensor
    counts: Tensor
    pairs: Tensor
    totals: Tensor
    most: int


def empty_plan(rows: int, topk: int, slots: Slots) -> Plan:
    """Room for the plan of a window."""
    together = rows * topk + (rows if slots.shared >= 0 else 0)
    most = rows * topk + (slots.shared >= 0)
    size = 1 << (rows * topk).bit_length()  # a power of two above T * topk

    def room(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=torch.int32, device=slots.slot_of.device)

    return Plan(rows, topk, together, room(size), room(size), room(size), room(size, 8), room(2), most)


def plan(ids: Tensor, slots: Slots, out: Plan | None = None) -> Plan:
    """Group the chosen experts ``int32 [T, topk]`` of a window.

    Raises:
        FormatError: more than 8 rows, or ids of another type.
    """
    rows, topk = ids.shape
    if not 1 <= rows <= MAX_ROWS or ids.dtype != torch.int32 or not ids.is_contiguous():
        raise FormatError(
            f"chosen experts are contiguous int32 [1 to {MAX_ROWS}, topk], not {ids.dtype} {list(ids.shape)}"
        )
    out = empty_plan(rows, topk, slots) if out is None else out
    size = len(out.experts)
    plan_kernel[(1,)](
        ids, slots.slot_of, out.experts, out.slots, out.counts, out.pairs, out.totals,
        rows * topk, rows, slots.experts, slots.shared, M=size, num_warps=1 if size <= 32 else size // 16, num_stages=1,
        **launch(ids.device),
    )  # fmt: skip
    return out


def _bodies(grouped: Plan, slots: Slots, beside: Slots | None, pairs: int) -> dict[str, int]:
    """The bodies a window of so many rows needs; one if all rows visit the one expert there is."""
    together = slots.experts == 1 and grouped.topk == 1
    most = 1 << (grouped.rows - 1).bit_length()
    rows = (
        grouped.rows if beside is not None else min(2, grouped.rows)
    )  # else it only matters whether there are several
    return {"LEAST": min(4, most) if together else 1, "MOST": min(4 if together else pairs, most), "ROWS": rows}


def _scale(slots: Slots, which: int) -> Tensor:
    return slots.slot_of if slots.scales is None else slots.scales[which]


def joinable(slots: Slots, shared: Slots) -> bool:
    """Whether a shared expert can be computed beside the others: of the same size, and without scales of its own."""
    one, other = slots.layout, shared.layout
    return (one.hidden, one.inner) == (other.hidden, other.inner) and shared.scales is None and slots.shared < 0


def gate_up(
    slots: Slots, x: Activations, grouped: Plan, out: Tensor | None = None, tile: Tile | None = None,
    beside: Slots | None = None,
) -> Tensor:  # fmt: skip
    """``silu(gate x) * (up x)`` of every pair: ``float32 [pairs, I]``; rows of missing experts are not written.

    Args:
        slots: the experts.
        x: the window's rows.
        grouped: their choices.
        out: to write to, or None for a new tensor.
        tile: or None for the variant of the table.
        beside: a shared expert in a slot of its own, `joinable`; all rows visit it, and its T rows of the result come
            last.
    """
    kind, blocks = slots.layout, slots.layout.hidden // 32
    _check_width(x, kind.hidden)
    device, pairs = slots.slot_of.device, grouped.pairs_in_all
    count = pairs + (0 if beside is None else grouped.rows)
    out = torch.empty((count, kind.inner), dtype=torch.float32, device=device) if out is None else out
    if tile is None:
        tile = resolve(VARIANTS, "experts.gate_up", arch(device), kind.gate, grouped.rows, kind.hidden, kind.inner).tile
    grid = (-(-kind.inner // (tile.rows * tile.tiles)), grouped.most + (beside is not None))
    other = (slots if beside is None else beside).layout
    types = (None, None) if beside is None else (other.gate, other.up)
    gate_up_kernel[grid](
        slots.data, kind.nbytes, kind.up_at, codewords(kind.gate, device), codewords(kind.up, device),
        x.q.view(torch.int32), x.s, x.z, _scale(slots, 0), _scale(slots, 1), out,
        grouped.slots, grouped.counts, grouped.pairs, grouped.totals, grouped.experts,
        kind.inner, grouped.rows * grouped.topk, slots.data if beside is None else beside.data, other.up_at,
        codewords(other.gate, device), codewords(other.up, device),
        **_bodies(grouped, slots, beside, tile.pairs), TOPK=grouped.topk, GATE=kind.gate, UP=kind.up,
        BESIDE=types[0], BESIDE_UP=types[1], **tile.constants(blocks),
        SCALED=slots.scales is not None, **tile.options(), **OPTIONS, **launch(device),
    )  # fmt: skip
    return out


def down(
    slots: Slots, h: Activations, grouped: Plan, out: Tensor | None = None, tile: Tile | None = None,
    beside: Slots | None = None,
) -> Tensor:  # fmt: skip
    """``down h`` of every pair, without router weights: ``float32 [pairs, H]``; arguments as of `gate_up`."""
    kind, blocks = slots.layout, slots.layout.inner // 32
    _check_width(h, kind.inner)
    device, pairs = slots.slot_of.device, grouped.pairs_in_all
    count = pairs + (0 if beside is None else grouped.rows)
    out = torch.empty((count, kind.hidden), dtype=torch.float32, device=device) if out is None else out
    if tile is None:
        tile = resolve(VARIANTS, "experts.down", arch(device), kind.down, grouped.rows, kind.inner, kind.hidden).tile
    grid = (-(-kind.hidden // (tile.rows * tile.tiles)), grouped.most + (beside is not None))
    other = (slots if beside is None else beside).layout
    down_kernel[grid](
        slots.data, kind.nbytes, kind.down_at, codewords(kind.down, device), h.q.view(torch.int32), h.s, h.z,
        _scale(slots, 2), out, grouped.slots, grouped.counts, grouped.pairs, grouped.totals, grouped.experts,
        kind.hidden, grouped.rows * grouped.topk,
        slots.data if beside is None else beside.data.view(-1)[other.down_at :], codewords(other.down, device),
        **_bodies(grouped, slots, beside, tile.pairs), KIND=kind.down, BESIDE=None if beside is None else other.down,
        **tile.constants(blocks), SCALED=slots.scales is not None, **tile.options(), **OPTIONS, **launch(device),
    )  # fmt: skip
    return out


def combine(
    y: Tensor, weights: Tensor, shared: Tensor | None = None, shared_weights: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Weighted sum of experts' rows in the router's order.

    Args:
        y: rows of the pairs, ``float32 [at least T * topk, H]``.
        weights: ``float32 [T, topk]``.
        shared: the shared expert's rows, ``float32 [T, H]``, added last; or None.
        shared_weights: ``float32 [T]``.
        out: ``float32 [T, H]`` to write to, or None for a new tensor.

    Raises:
        FormatError: a shared expert without weights, or the other way round.
    """
    if (shared is None) != (shared_weights is None):
        raise FormatError("a shared expert comes with its weights, or neither is given")
    (rows, topk), width = weights.shape, y.shape[1]
    out = torch.empty((rows, width), dtype=torch.float32, device=y.device) if out is None else out
    combine_kernel[(-(-width // _COMBINED), rows)](
        y, weights, y if shared is None else shared, weights if shared_weights is None else shared_weights, out,
        width, topk, SHARED=shared is not None, BLOCK=_COMBINED, num_warps=2, **OPTIONS, **launch(y.device),
    )  # fmt: skip
    return out


def experts(
    slots: Slots, x: Activations, ids: Tensor, weights: Tensor, shared_weights: Tensor | None = None,
    beside: Slots | None = None, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """All of it: ``float32 [T, H]``. Every chosen expert has to be resident.

    Args:
        slots: the experts, with the shared one if ``shared_weights`` is given and ``beside`` is not.
        x: the window's rows.
        ids: chosen experts, ``int32 [T, topk]``.
        weights: ``float32 [T, topk]``.
        shared_weights: ``float32 [T]``, or None.
        beside: the shared expert in a slot of its own, `joinable`.
        out: to write to, or None for a new tensor.
    """
    grouped = plan(ids, slots)
    y = down(slots, quantise(gate_up(slots, x, grouped, beside=beside)), grouped, beside=beside)
    shared = None if shared_weights is None else y[grouped.rows * grouped.topk :]
    return combine(y, weights, shared, shared_weights, out)


def _check_width(x: Activations, width: int) -> None:
    if 32 * x.s.shape[1] != width:
        raise FormatError(f"activations have a width of {32 * x.s.shape[1]}, the experts take {width}")
