"""What misses cost where both sides are at work: whole layers, shared out in several ways.

Each side measured by itself is faster than beside the other. An H200's machine gives its 16 threads 81 GB/s of RAM, and
its link reads the same RAM at 40 to 55: beside it, an expert takes the host 51 microseconds instead of 40, and what
each side took alone gave the host a share with which layers waited 74 microseconds for it. So layers are computed as
windows compute them, their misses shared out in ways around the one that seems best, and the costs are those that
explain these times.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from strata.errors import TierError
from strata.experts.misses import Costs, shares
from strata.ops.experts.triton import Plan
from strata.ops.gpu.branches import Branches
from strata.ops.matvec.triton import Activations, quantise
from strata.ops.streams import recorded
from strata.ops.tiers.here import here
from strata.ops.tiers.tier import Tier

LAYERS = 6
"""Measured together, one after the other, as in a window; other experts of other layers each, or the host's caches
would have them."""

TIMES = 5
"""That each way is measured; the median counts."""

WAYS = (-2, -1, 0, 1, 2)
"""By how many experts the link's share differs from what seems best; by twice as many in windows of several rows."""

WIDE = 4
"""Rows of the window in which more experts are missing than one row chooses."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One way to share a layer's misses out, and how long that takes.

    Attributes:
        missing: experts.
        link: of them those that come over the link.
        us: microseconds of a layer.
    """

    missing: int
    link: int
    us: float


def balanced(tier: Tier, costs: Costs, *, times: int = TIMES, layers: int = LAYERS) -> Costs:
    """Costs of both sides where both work.

    Args:
        tier: no window of it may run.
        costs: of each side by itself.
        times: that each way is measured.
        layers: at a time.

    Raises:
        TierError: the host does not answer.
    """
    topk, met = tier.host.mailbox.topk, tier.sums.clone()
    found: list[Sample] = []
    for rows, counts in ((1, range(2, topk + 1, 2)), (WIDE, range(2 * topk, WIDE * topk + 1, topk))):
        found += _measured(tier, rows, counts, costs, times, layers)
    tier.sums.copy_(met)  # no window has met these, and sums never fall
    return fitted(costs, found)


def fitted(costs: Costs, samples: Sequence[Sample], steps: int = 8) -> Costs:
    """Costs that explain some times: of each sample the slower side's, by least squares.

    A side that is the slower one in too few samples, or whose line does not rise, keeps what it had.

    Args:
        costs: with which the slower sides are told apart at first.
        samples: measured.
        steps: until the sides are told apart by what was found.
    """
    for _ in range(steps):
        host, link = [], []
        for one in samples:
            by_host = costs.host_first + (one.missing - one.link) * costs.host if one.missing > one.link else 0.0
            by_link = costs.link_first + one.link * costs.link if one.link else 0.0
            if by_host >= by_link:
                host.append((one.missing - one.link, one.us))
            else:
                link.append((one.link, one.us))
        each, first = _line(host, costs.host, costs.host_first)
        link_each, link_first = _line(link, costs.link, costs.link_first)
        costs = Costs(each, link_each, first, link_first)
    return costs


def _line(points: Sequence[tuple[int, float]], each: float, first: float) -> tuple[float, float]:
    """Slope and beginning of a line near some points."""
    if len({count for count, _ in points}) < 3:
        return each, first
    x, y = np.array(points, np.float64).T
    slope, start = np.polyfit(x, y, 1)
    if slope <= 0:
        return each, first
    return float(slope), max(0.0, float(start))


def _measured(
    tier: Tier, rows: int, counts: Sequence[int], costs: Costs, times: int, layers: int
) -> list[Sample]:  # fmt: skip
    window = _Window(tier, rows, layers)
    best = shares(costs, rows * tier.host.mailbox.topk, tier.options.room)
    found = []
    for missing in counts:
        ways = {int(best[missing]) + (way if rows == 1 else 2 * way) for way in WAYS}
        for link in sorted(way for way in ways if 0 <= way <= min(missing, tier.options.room)):
            some = [window.microseconds(missing, link) for _ in range(times)]
            found.append(Sample(missing, link, float(np.median(some)) / layers))
    tier.share_out(costs)
    return found


class _Window:
    """Some layers' misses, recorded on a GPU, with other experts each time."""

    def __init__(self, tier: Tier, rows: int, layers: int) -> None:
        device, mailbox = tier.table.device, tier.host.mailbox
        self._tier, self._device, self._most = tier, device, rows * mailbox.topk
        self._dice = np.random.default_rng(rows)
        size = 1 << self._most.bit_length()
        self._totals = torch.zeros(2, dtype=torch.int32, device=device)
        ones = torch.ones(size, dtype=torch.int32, device=device)
        pairs = torch.zeros((size, 8), dtype=torch.int32, device=device)
        pairs[:, 0] = torch.arange(size, device=device).flip(0)  # missing experts are the last
        self._x: Activations = quantise(torch.randn((rows, mailbox.hidden), device=device))
        self._y = torch.empty((self._most, mailbox.hidden), device=device)
        self._experts: list[Tensor] = []
        self._parts: list[tuple[int, Plan]] = []
        self._some: list[np.ndarray] = []
        for i in range(layers):
            number, some = here(tier, i * len(tier.layers) // layers, self._most, shown=True)
            experts = torch.zeros(size, dtype=torch.int32, device=device)
            plan = Plan(
                rows, mailbox.topk, self._most, experts, experts, ones, pairs, self._totals, self._most
            )  # fmt: skip
            self._experts.append(experts)
            self._parts.append((number, plan))
            self._some.append(some)
        self._branches = Branches(graphs=device.type == "cuda")
        self._graph: torch.cuda.CUDAGraph | None = None
        self.microseconds(1, min(1, tier.options.room))  # compiled, and the host is awake
        if device.type == "cuda":
            graph = torch.cuda.CUDAGraph()
            with recorded(graph):
                self._launch()
            self._graph = graph
            self.microseconds(self._most, 0)

    def _launch(self) -> None:
        for number, plan in self._parts:
            self._tier.layers[number].misses(self._x, plan, self._y, self._branches)()

    def microseconds(self, missing: int, link: int) -> float:
        """Of all layers, if each lacks so many experts and gets some of them over the link."""
        tier = self._tier
        for experts, some in zip(self._experts, self._some, strict=True):
            chosen = self._dice.permutation(some)[: len(experts)]
            experts[len(experts) - len(chosen) :].copy_(torch.from_numpy(chosen))
        self._totals.copy_(torch.tensor([0, missing], dtype=torch.int32))
        tier.split[missing] = link
        tier.begin()
        took = self._timed()
        fault = tier.host.fault()
        if fault is not None:
            raise TierError(f"the host could not compute its share of {missing} experts: {fault}")
        return took

    def _timed(self) -> float:
        if self._device.type != "cuda":
            began = time.perf_counter()
            self._launch()
            return 1e6 * (time.perf_counter() - began)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self._device)
        begin.record()
        self._launch() if self._graph is None else self._graph.replay()
        end.record()
        end.synchronize()
        return 1e3 * begin.elapsed_time(end)
