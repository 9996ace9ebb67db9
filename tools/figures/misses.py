"""What a layer launches for experts that miss, in several ways, taking turns under one cap: what each is worth.

Shares of host and link are measured anew for every way, and slots stay what they were when the turns began.
"""

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from figures.session import Session
from figures.summary import per_window
from figures.windows import learn, windows
from strata.ops.experts.triton import Plan
from strata.ops.gpu.branches import Branches
from strata.ops.matvec.triton import Activations
from strata.ops.tiers import bring, measure
from strata.ops.tiers.layer import LayerTier

FIRST = 6
"""Windows after a change: the first ones are recorded."""


@dataclass(frozen=True, slots=True)
class Way:
    """One of them.

    Attributes:
        halves: gates and ups are brought before downs.
        beside: the host is awaited beside the link's products, not behind them.
        urgent: branches whose programs start before those of hits that wait for room, besides the first.
        programs: that bring, for each multiprocessor.
    """

    halves: bool = True
    beside: bool = True
    urgent: tuple[str, ...] = ()
    programs: float = 1.0


WAYS = {
    "now": Way(),
    "experts in one launch": Way(halves=False),
    "the host behind the link": Way(beside=False),
    "both": Way(halves=False, beside=False),
    "the link's products are urgent": Way(urgent=("link",)),
    "the host's rows are urgent": Way(urgent=("host",)),
    "three quarters of the programs": Way(programs=0.75),
    "half of the programs": Way(programs=0.5),
    "a third of the programs": Way(programs=1 / 3),
}


def misses(session: Session) -> dict[str, Any]:
    """Milliseconds of windows, and what they met."""
    arm = session.arms("cap24")["cap24"]
    assert arm.tier is not None
    learn(session, "cap24", arm)
    arm.tier.still = True
    sizes, layers = session.sizes, int(arm.facts["layers"])
    rounds: dict[str, list[float]] = {name: [] for name in WAYS}
    met: dict[str, Any] = {}
    for turn in session.rounds():
        for name in list(WAYS) if turn % 2 else reversed(WAYS):
            with _way(WAYS[name]):
                arm.network.ops.recorded.clear()  # type: ignore[attr-defined]  # of a device
                costs = measure.balance(arm.tier) if session.device.type == "cuda" else arm.tier.options.costs
                windows(arm.network, sizes.wide, min(FIRST, sizes.tokens), 1)
                before = arm.tier.total
                took = statistics.median(windows(arm.network, sizes.wide, max(1, sizes.tokens // 2), 3000 * turn))
                seen = {"costs_us": asdict(costs), "met": per_window(asdict(arm.tier.total - before), layers)}
            session.say(f"{name}: {took:.3f} ms, {seen}")
            if turn >= 0:
                rounds[name].append(round(took, 3))
                met[name] = seen
        session.keep({"rounds": rounds})
    arm.network.ops.recorded.clear()  # type: ignore[attr-defined]
    medians = {name: statistics.median(some) for name, some in rounds.items() if some}
    return {"placed": arm.placed, "rounds": rounds, "medians": medians, "last": met}


@contextmanager
def _way(way: Way) -> Iterator[None]:
    """Layers launch so meanwhile."""
    now, count = LayerTier.misses, bring.programs_of

    def programs(device: torch.device, each: int = bring.PER_PROCESSOR) -> int:
        return max(1, round(way.programs * count(device, each)))

    def launched(
        self: LayerTier, x: Activations, plan: Plan, y: torch.Tensor, branches: Branches
    ) -> Callable[[], None]:
        return _misses(way, self, x, plan, y, branches)

    bring.programs_of = programs  # type: ignore[assignment]  # not kept from launch to launch
    if replace(way, programs=1.0) != Way():  # else as layers do it by themselves
        LayerTier.misses = launched  # type: ignore[method-assign]
    try:
        yield
    finally:
        LayerTier.misses = now  # type: ignore[method-assign]
        bring.programs_of = count


def _misses(
    way: Way, layer: LayerTier, x: Activations, plan: Plan, y: torch.Tensor, branches: Branches
) -> Callable[[], None]:  # fmt: skip
    """As `LayerTier.misses`, but for what is different."""
    points: list[Callable[[], None]] = []

    def asked() -> None:
        layer.publish(x, plan)
        points.append(branches.point())
        for parts in (bring.GATE_UP, bring.DOWN) if way.halves else (bring.GATE_UP + bring.DOWN,):
            layer.fetch(plan, parts)
            points.append(branches.point())

    brought = branches.begin("asked", asked, urgent=True)

    def computed() -> None:
        points[1]()
        layer.compute(x, plan, y, brought)
        if not way.beside:
            layer.take(plan, y)

    def taken() -> None:
        points[0]()
        layer.take(plan, y)

    bodies = {"link": computed} | ({"host": taken} if way.beside else {})
    joins = [
        branches.begin(f"{key}, urgent" if key in way.urgent else key, body, urgent=key in way.urgent)
        for key, body in bodies.items()
    ]

    def finish() -> None:
        for join in joins:
            join()

    return finish
