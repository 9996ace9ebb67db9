"""What an expert costs on either side, measured where the model runs, before its first window."""

import logging
import time
from dataclasses import replace

import numpy as np
import torch

from strata.errors import TierError
from strata.experts.misses import Costs
from strata.experts.misses import mailbox as box
from strata.ops.streams import recorded
from strata.ops.tiers import kernels
from strata.ops.tiers.balance import balanced
from strata.ops.tiers.here import here
from strata.ops.tiers.landing import Landing
from strata.ops.tiers.tier import Tier

FEW, MANY = 1, 8
"""Experts of the two messages whose times make a line."""

TIMES = 7
"""Of each; medians count."""

DOORBELL_US = 6.0
"""Microseconds that raising a message, waiting for the answer and taking its rows add on the device's side."""

COMPUTED_US = 17.0
"""Microseconds that experts which came wait for their products: gate and up, and down, of an H200's windows."""

REPEATS = 4
"""Times that experts are brought by one recorded graph: its own start takes some microseconds."""

PATIENCE = 30.0

APART = 2.0
"""Times that what is measured now may differ from what was measured in quiet before: beyond it, something was in the
way of one of the two."""

log = logging.getLogger("strata.ops")


def host_costs(tier: Tier) -> tuple[float, float]:
    """Microseconds the host takes for each expert of one row, and once for a message: the slope and the rest.

    Messages are raised by us, in the device's place; no window may run.

    Raises:
        TierError: the host does not answer.
    """
    rng = np.random.default_rng(1)
    times = {count: float(np.median([_ask(tier, count, rng) for _ in range(TIMES)])) for count in _counts(tier)}
    return _line(times)


def link_costs(tier: Tier) -> tuple[float, float]:
    """The same for the link, on a GPU."""
    device = tier.table.device
    times = {}
    for count in _counts(tier):
        some = [_bring(tier, count, device, turn) for turn in range(TIMES)]
        times[count] = float(np.median(some))
    return _line(times)


def copy_cost(tier: Tier, landing: Landing) -> float:
    """Microseconds an expert takes that a GPU's copy engine brings, in groups of neighbours. No window may run."""
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    count, times = landing.most, []
    for turn in range(1 + TIMES):
        which, some = here(tier, turn % len(tier.layers), count)
        addresses = tier.ram.addresses[which, some[:count]]
        began.record()
        for place in range(len(landing)):
            landing.fetch(tier.layers[which].source, place, addresses, range(len(addresses)))
        ended.record()
        ended.synchronize()
        times.append(1e3 * began.elapsed_time(ended) / len(landing) / len(addresses))
    return float(np.median(times[1:]))


def calibrate(tier: Tier, before: Costs | None = None, *, same: bool = False) -> Costs:
    """Measure both sides and share misses out accordingly.

    Args:
        tier: no window of it may run.
        before: by what kernels and link did when they were measured by themselves (`strata calibrate`); what is
            measured now stays within `APART` times of it.
        same: it was measured in tiers of just such experts and threads, and nothing needs to be measured again.

    Raises:
        TierError: the host does not answer.
    """
    if before is not None and same:
        tier.share_out(before)
        tier.costs = before
        return before
    each, first = host_costs(tier)
    options = tier.options.costs
    link, link_first = (options.link, options.link_first)
    if tier.table.device.type == "cuda" and tier.options.room:
        link, link_first = link_costs(tier)
        link_first += COMPUTED_US
    costs = Costs(each, link, first + DOORBELL_US, link_first)
    if before is not None:
        near = replace(costs, host=_near(costs.host, before.host), link=_near(costs.link, before.link))
        if near != costs:
            log.warning(
                "experts in tiers: measured %s now, and %s before in quiet; going on with %s", costs, before, near
            )
        costs = near
    tier.share_out(costs)
    tier.costs = costs
    return costs


def balance(tier: Tier) -> Costs:
    """Share misses out by what they cost where both sides are at work; once everything is compiled.

    Args:
        tier: measured before, side by side; no window of it may run.

    Raises:
        TierError: the host does not answer.
    """
    costs = balanced(tier, tier.costs or tier.options.costs)
    tier.share_out(costs)
    tier.costs = costs
    return costs


def _near(now: float, before: float) -> float:
    return min(max(now, before / APART), before * APART)


def _counts(tier: Tier) -> tuple[int, int]:
    most = min(MANY, tier.table.shape[1], tier.host.mailbox.topk)
    if tier.options.room:
        most = min(most, tier.options.room)
    return FEW, max(FEW + 1, most)


def _line(times: dict[int, float]) -> tuple[float, float]:
    (few, short), (many, long) = times.items()
    each = max(0.01, (long - short) / (many - few))
    return each, max(0.0, short - few * each)


def _ask(tier: Tier, count: int, rng: np.random.Generator) -> float:
    """Microseconds the host was at a message of so many experts."""
    host, m = tier.host, tier.host.mailbox
    memory, words = host.memory, m.words(host.memory)
    layers = len(tier.table)
    header = m.view(memory, box.HEADER, np.int32, 4)
    number, some = here(tier, int(rng.integers(layers)), count)
    header[:] = number, 1, count, count
    m.view(memory, m.experts, np.int32, count)[:] = rng.permutation(some)[:count]
    m.view(memory, m.counts, np.int32, count)[:] = 1
    m.view(memory, m.numbers, np.int32, count, box.MOST_ROWS)[:, 0] = np.arange(count)
    m.view(memory, m.codes, np.int8, m.hidden)[:] = rng.integers(-127, 128, m.hidden)
    m.view(memory, m.scales, np.float32, m.hidden // 32)[:] = 1e-3
    before = host.stats()
    host.ring()
    message = int(words[0]) + 1
    tier.state[kernels.COUNTER.value] = message
    words[0] = message
    end = time.monotonic() + PATIENCE
    while words[1] < message:
        if time.monotonic() > end:
            raise TierError(f"the host did not answer a message of {count} experts in {PATIENCE:.0f} s")
        time.sleep(0)
    fault = host.fault()
    if fault is not None:
        raise TierError(f"the host could not compute {count} experts: {fault}")
    return 1e6 * (host.stats().busy_s - before.busy_s)


def _bring(tier: Tier, count: int, device: torch.device, turn: int) -> float:
    """Microseconds that experts of one layer take to the link's places, in a recorded graph as in a window's.

    Launched one by one they would be measured by how fast Python launches: some 180 microseconds before the first.
    """
    which, some = here(tier, turn % len(tier.layers), REPEATS * count, shown=True)
    layer, there = tier.layers[which], torch.from_numpy(some).to(device)
    number = torch.arange(count, dtype=torch.int32, device=device)
    places = number * 37 + 11 * turn
    total = torch.tensor([count], dtype=torch.int32, device=device)
    chosen = [there[(places + i * count) % len(there)] for i in range(REPEATS)]
    layer.bring(chosen[0], number, total, count)  # compiled, and the tables are there
    torch.cuda.synchronize(device)
    graph = torch.cuda.CUDAGraph()
    with recorded(graph):
        for experts in chosen:
            layer.bring(experts, number, total, count)
    graph.replay()
    began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    began.record()
    graph.replay()
    ended.record()
    ended.synchronize()
    return 1e3 * began.elapsed_time(ended) / REPEATS
