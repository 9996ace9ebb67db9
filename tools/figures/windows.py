"""Windows: decode token by token, and windows of one and four rows, of placements that take turns."""

import random
import statistics
import time
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from figures.arms import CAPS, THIRD, Arm
from figures.session import Session, synchronise
from figures.sizes import Sizes
from figures.summary import per_window, share_of_the_first
from strata.engine import Drafting, Generation, Request, Sampling, step
from strata.errors import RequestError
from strata.model import Network
from strata.model.tally import Tally

GREEDY = Sampling(temperature=0.0)
NO_DRAFTS = Drafting(depth=0)

ASLEEP = 0.3
"""Seconds after which the threads of a tier that nobody uses sleep (`strata.experts.misses.host.SPIN`)."""


def ids(seed: int, count: int, vocabulary: int) -> list[int]:
    """Tokens of no text."""
    dice = random.Random(seed)
    return [dice.randrange(min(1000, vocabulary // 2), min(200_000, vocabulary)) for _ in range(count)]


def decode(network: Network, tokens: int, seed: int) -> float:
    """Tokens a second of one greedy answer, token by token through the engine."""
    device = _device(network)
    prompt = tuple(ids(seed, 8 if tokens > 2 else 1, network.config.V))
    request = Request("", prompt, sampling=GREEDY, max_tokens=tokens, drafting=NO_DRAFTS)
    answer = Generation(network, network.new_state(), request)
    while answer.reading:
        answer.read()
    synchronise(device)
    first, began = answer.tokens, time.perf_counter()
    while not answer.finished:
        step(network, [answer])
    synchronise(device)
    if answer.finished.error is not None:
        raise answer.finished.error
    return (answer.tokens - first) / (time.perf_counter() - began)


def windows(network: Network, rows: int, count: int, seed: int) -> list[float]:
    """Milliseconds of windows and the commit of one row each."""
    device, state, times = _device(network), network.new_state(), []
    if device.type == "cuda":
        network.read(state, ids(seed, 8, network.config.V))
    for turn in range(count):
        tokens = ids(seed + turn, rows, network.config.V)
        synchronise(device)
        began = time.perf_counter()
        done = network.window([(state, tokens)])[0]
        network.commit(state, done, 1)
        synchronise(device)
        network.ops.check()
        times.append(1e3 * (time.perf_counter() - began))
    return times


class Rounds:
    """What an arm has done in its rounds."""

    def __init__(self, arm: Arm) -> None:
        self.arm = arm
        self.values: dict[str, list[float]] = {"decode_tps": [], "window1_ms": [], "window4_ms": []}
        self.met = {"decode": Tally(), "window1": Tally(), "window4": Tally()}

    def round(self, turn: int, sizes: Sizes) -> dict[str, float]:
        """One more; the one before the first is not kept."""
        time.sleep(ASLEEP)
        network, count = self.arm.network, max(1, sizes.tokens // 2)

        def middle(rows: int, seed: int) -> float:
            return statistics.median(windows(network, rows, count, seed))

        found = {
            "decode_tps": self._met("decode", turn, lambda: decode(network, sizes.tokens, 10 + turn)),
            "window1_ms": self._met("window1", turn, lambda: middle(1, 1000 * turn)),
            "window4_ms": self._met("window4", turn, lambda: middle(sizes.wide, 2000 * turn)),
        }  # fmt: skip
        found = {name: round(value, 3) for name, value in found.items()}
        if turn >= 0:
            for name, value in found.items():
                self.values[name].append(value)
        return found

    def _met(self, what: str, turn: int, body: Any) -> float:
        tier = self.arm.tier
        before = None if tier is None else tier.total
        value: float = body()
        if tier is not None and before is not None and turn >= 0:
            now = tier.total - before
            sums = asdict(self.met[what])
            self.met[what] = Tally(*(sums[name] + value for name, value in asdict(now).items()))
        return value

    def told(self) -> dict[str, Any]:
        """As it is kept."""
        arm, layers = self.arm, int(self.arm.facts["layers"])
        found: dict[str, Any] = {"placed": arm.placed, "facts": arm.facts, "rounds": self.values}
        found["medians"] = {name: statistics.median(some) for name, some in self.values.items() if some}
        if arm.tier is not None:
            found["met"] = {name: per_window(asdict(sums), layers) for name, sums in self.met.items()}
            stats = arm.tier.host.stats()
            found["host"] = asdict(stats) | {"gbs": round(stats.nbytes / max(stats.busy_s, 1e-9) / 1e9, 2)}
        else:
            every = {"decode": 1, "window1": 1, "window4": 4}
            each = (
                arm.facts["layers"] * arm.facts["topk"]
            )  # of four rows at most four times as many: routing is not seen
            found["met"] = {name: {"rows": rows, "union_at_most": each * rows} for name, rows in every.items()}
        return found | arm.extra


def turns(session: Session, names: tuple[str, ...]) -> dict[str, Any]:
    """Rounds of several arms, in an order that turns around from round to round."""
    arms: dict[str, Arm] = {}
    found: dict[str, Any] = {"arms": {}}
    for name in names:
        try:
            arms |= session.arms(name)
        except RequestError as error:
            if name not in CAPS:
                raise
            session.say(f"{name}: {error}")
            found["arms"][name] = {"does_not_fit": str(error)}
    for name, arm in arms.items():
        if name in CAPS:
            learn(session, name, arm)
    every = {name: Rounds(arm) for name, arm in arms.items()}
    for turn in session.rounds():
        for name in list(every) if turn % 2 else reversed(list(every)):
            session.say(f"round {turn + 1}, {name}: {every[name].round(turn, session.sizes)}")
        if turn >= 0:
            found["arms"] |= {name: one.told() for name, one in every.items()}
            session.keep(found)
    return found | {"arms": found["arms"] | {name: one.told() for name, one in every.items()}}


def learn(session: Session, name: str, arm: Arm) -> None:
    """Windows from which the slots learn, and how unequal their visits are."""
    assert arm.tier is not None
    before, cache = arm.tier.total, arm.tier.cache
    counts, seen = np.zeros(cache.slot_of.shape, np.int64), cache.seen

    def counted(visits: Any) -> Any:
        np.add.at(counts, (visits[:, 0], visits[:, 1]), 1)
        return seen(visits)

    cache.seen = counted  # type: ignore[method-assign]
    try:
        times = windows(arm.network, session.sizes.wide, session.sizes.learning, 1)
        last = windows(arm.network, session.sizes.wide, max(1, session.sizes.learning // 8), 70_000)
    finally:
        cache.seen = seen  # type: ignore[method-assign]
    arm.extra["learning"] = {
        "windows": len(times) + len(last), "first_ms": round(times[0], 3),
        "median_ms": round(statistics.median(times), 3), "last_ms": round(statistics.median(last), 3),
        "met": per_window(asdict(arm.tier.total - before), int(arm.facts["layers"])),
        "visits_of_the_most_visited_32%": round(share_of_the_first(counts.ravel().tolist(), THIRD), 3),
    }  # fmt: skip
    session.say(f"{name}: {arm.extra['learning']}")


def nodes(session: Session) -> dict[str, Any]:
    """Kernels and copies that a recorded window launches: with all in VRAM, and with tiers, whatever lies where.

    By the profiler, whose hooks may slow down what comes after; so this comes last.
    """
    found: dict[str, Any] = {}
    for name, arm in session.arms("resident", "none").items():
        found[name] = {}
        for rows in (1, 4):
            windows(arm.network, rows, 3, 1)
            found[name][str(rows)] = _nodes(arm.network, rows)
        session.say(f"{name}: {found[name]}")
        session.keep(found)
    return found


def _nodes(network: Network, rows: int) -> int | None:
    ops: Any = network.ops
    recorded = ops.recorded.get((rows,))
    if recorded is None:
        return None
    from torch.profiler import ProfilerActivity, profile

    if ops.tier is not None:
        ops.tier.begin()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        recorded[0].replay()
        torch.cuda.synchronize()
    return sum(str(event.device_type).endswith("CUDA") for event in seen.events())


def _device(network: Network) -> torch.device:
    routers: Any = network.weights.layers[0].moe
    device: torch.device = routers.choosing.device
    return device
