"""Experts of a window on a GPU: the router's choice and its plan, the chosen experts' rows, and the shared one's."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strata.model.config import ModelConfig
from strata.ops import dependent
from strata.ops.experts import triton as experts
from strata.ops.experts.slots import Slots
from strata.ops.experts.triton import Plan
from strata.ops.gpu.branches import Branches
from strata.ops.gpu.rows import ExpertRows, Rows, linear
from strata.ops.gpu.upload import DeviceMoe
from strata.ops.matvec.triton import MAX_ROWS, Activations, quantise
from strata.ops.moe import gpu as moe
from strata.ops.tiers.layer import LayerTier


class GpuRoute(NamedTuple):
    """`strata.model.ops.Route`, the weight of the shared expert, float32 [T], and more for at most eight rows.

    Attributes:
        plan: of the chosen experts.
        always: waits for the shared expert's rows, float32 [T, H]; None if they come with those of the others.
    """

    experts: Tensor
    weights: Tensor
    shared: Tensor
    plan: Plan | None = None
    always: Callable[[], Tensor] | None = None


class Visits:
    """What rows visit.

    Args:
        config: dimensions.
        device: where weights are.
        branches: of the window that is captured.
    """

    def __init__(self, config: ModelConfig, device: torch.device, branches: Branches) -> None:
        self._c = config.moe
        self._device = device
        self._branches = branches
        self._launch = dependent.launch(device)
        self._plans: dict[int, Plan] = {}

    def route(self, m: Rows, w: DeviceMoe) -> GpuRoute:
        """Choose; the shared expert's weight is one more column of the router.

        A window's plan is made with it, and beside it the shared expert, if it has launches of its own, is begun: it
        waits for no choice, and while the router is at work, a GPU has little else to do.
        """
        count, topk, e = len(m.x), self._c.topk, self._c.E
        always = None
        if count <= MAX_ROWS and m.quantised is not None and not experts.joinable(w.slots, w.shared):
            body = partial(_rows_of, w.shared, m.quantised, self._only(w.shared, count))
            always = self._branches.begin("shared", body)
        logits = linear(m, w.choosing)
        chosen = torch.empty((count, topk), dtype=torch.int32, device=self._device)
        shares = torch.empty((count, topk), dtype=torch.float32, device=self._device)
        shared = torch.empty((count,), dtype=torch.float32, device=self._device)
        common: dict[str, Any] = {"E": e, "TOPK": topk, "COUNT": _power(-(-e // moe.LANES.value)), **self._launch}
        if count > MAX_ROWS:
            moe.route[(count,)](logits, chosen, shares, shared, **common, num_warps=1)
            return GpuRoute(chosen, shares, shared)
        plan, rows = experts.empty_plan(count, topk, w.slots), _power(count)
        moe.route_and_plan[(1,)](
            logits, chosen, shares, shared, w.slots.slot_of,
            plan.experts, plan.slots, plan.counts, plan.pairs, plan.totals, w.slots.shared,
            T=count, ROWS=rows, PLACES=max(16, _power(topk)), M=len(plan.experts), **common, num_warps=rows,
        )  # fmt: skip
        return GpuRoute(chosen, shares, shared, plan, always)

    def rows(self, m: Rows, route: GpuRoute, w: DeviceMoe) -> Tensor | ExpertRows:
        """A window's rows, to be weighed and added by the next read; of more, the sums float32 [T, H].

        These eight rows at a time, for a plan holds no more.
        """
        a = m.quantised
        assert a is not None
        if w.tier is not None and route.plan is not None:
            return self._tiered(a, route, w, w.tier)
        if route.plan is not None:
            if route.always is None:
                y = _rows_of(w.slots, a, route.plan, w.shared)
                return ExpertRows(y, route.weights, y[a.rows * route.plan.topk :], route.shared)
            return ExpertRows(_rows_of(w.slots, a, route.plan), route.weights, route.always(), route.shared)
        out = torch.empty_like(m.x)
        for first in range(0, len(m.x), MAX_ROWS):
            part = slice(first, first + MAX_ROWS)
            x = Activations(a.q[part], a.s[part], a.z[part])
            plan = experts.plan(route.experts[part].contiguous(), w.slots)
            y = torch.empty((x.rows * plan.topk, self._width(w)), dtype=torch.float32, device=self._device)
            if w.tier is not None:
                w.tier.misses(x, plan, y, self._branches)()
            _rows_of(w.slots, x, plan, out=y)
            shared = _rows_of(w.shared, x, self._only(w.shared, x.rows))
            experts.combine(y, route.weights[part].contiguous(), shared, route.shared[part], out[part])
        return out

    def _tiered(self, a: Activations, route: GpuRoute, w: DeviceMoe, tier: LayerTier) -> ExpertRows:
        """The same where experts may be missing: what has to do with those is beside the hits."""
        plan = route.plan
        assert plan is not None
        beside = w.shared if route.always is None else None
        pairs = a.rows * plan.topk
        y = torch.empty(
            (pairs + (a.rows if beside is not None else 0), self._width(w)), dtype=torch.float32, device=self._device
        )
        missing = tier.misses(a, plan, y, self._branches)
        _rows_of(w.slots, a, plan, beside, out=y)
        missing()
        always = y[pairs:] if route.always is None else route.always()
        return ExpertRows(y, route.weights, always, route.shared)

    @staticmethod
    def _width(w: DeviceMoe) -> int:
        return w.slots.layout.hidden

    def _only(self, shared: Slots, rows: int) -> Plan:
        """The plan of so many rows that all visit the one expert there is; made once."""
        plan = self._plans.get(rows)
        if plan is None:
            plan = self._plans[rows] = experts.plan(
                torch.zeros((rows, 1), dtype=torch.int32, device=self._device), shared
            )
        return plan


def _rows_of(
    slots: Slots, x: Activations, plan: Plan, beside: Slots | None = None, out: Tensor | None = None
) -> Tensor:
    """Rows of all pairs of chosen experts, without weights: float32 [T * topk, H]; last those of one beside them."""
    return experts.down(slots, quantise(experts.gate_up(slots, x, plan, beside=beside)), plan, out, beside=beside)


def _power(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
