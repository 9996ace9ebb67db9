"""How fast a plan will be, about: bytes over bandwidths. Estimates, not measurements, and they say so.

A window computes N rows. Its dense work and each layer's experts follow one another; experts with a slot (card) and
without one (CPU and link together) run side by side: `T = dense + latency + max(hits, misses)`. Experts of N rows are
1, 1.75, 2.4, 3.05 times those of one. How many are hits follows from the share of the experts in VRAM, as cards and
texts observed had it; the same curve, from the first expert of the order on, says how many of the misses RAM has, and
the SSD the rest. A prompt pass meets nearly all experts: it takes as long as the slowest of computing, the link for
the experts without a slot, and the SSD for those not in RAM. These are bounds; what engines reached of them is
`REACHED`.
"""

from dataclasses import dataclass
from itertools import pairwise

from strata.memory.budget.plan import Arena, Plan

HITS = ((0.0, 0.0, 0.0), (0.12, 0.56, 0.62), (0.17, 0.61, 0.68), (0.32, 0.83, 0.90), (1.0, 1.0, 1.0))
"""(share of the experts in VRAM, least and most hits seen with it), between which lines are drawn."""

UNION = {1: 1.0, 2: 1.75, 3: 2.4, 4: 3.05}
"""Experts that so many rows of a window visit, of those that one visits."""

ROWS, ACCEPTED = 4, 2.3
"""Rows of a window with drafts, and tokens that come of it in ordinary text."""

LATENCY, LATENCY_DRAFTS = 1.2e-3, 1.3e-3
"""Seconds that the kernels' starts add to a window: some 680 of `START` microseconds."""

START = 1.8

REACHED = 0.5, 0.7
"""Share of the bound that engines reached: with misses, and with all experts in VRAM or on a CPU."""

BEHIND = 32768
"""Tokens of context that a window stands behind in the estimate, or as many as there can be."""

SMALL = 10**9
"""Bytes of weights below which a model waits for other things than memory, and there is no estimate."""

UTILISED = 0.5
"""Share of a card's peak that large products reach."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Estimates.

    Attributes:
        hits: share of expert visits that find theirs in VRAM, (least, most).
        plain: tokens/s without drafts, (least, most).
        drafted: with drafts, ordinary text; None without a draft head.
        bound: tokens/s that the better of the two could reach at most.
        slowest: what a window mostly waits for: "dense weights", or "experts" "in VRAM", "in RAM" or "on the SSD".
        prompt: tokens/s of reading a long prompt; None where nothing is known (CPU).
        prompt_bound: by what: "computing", "the link" or "the SSD".
        start: seconds to bring the weights from the SSD into memory.
    """

    hits: tuple[float, float]
    plain: tuple[float, float]
    drafted: tuple[float, float] | None
    bound: float
    slowest: str
    prompt: float | None
    prompt_bound: str
    start: float

    @property
    def best(self) -> tuple[float, float]:
        """With drafts, if these pay."""
        return self.plain if self.drafted is None else max(self.plain, self.drafted)


def hits(share: float) -> tuple[float, float]:
    """Least and most hits to expect with such a share of the experts."""
    for (a, low_a, high_a), (b, low_b, high_b) in pairwise(HITS):
        if share <= b:
            part = (share - a) / (b - a)
            return low_a + part * (low_b - low_a), high_a + part * (high_b - high_a)
    return 1.0, 1.0


def estimate(made: Plan) -> Speed | None:
    """The estimates of a plan; None if the model is too small, or its sizes do not say what is read."""
    if made.sizes.reads is None or made.sizes.dense + made.sizes.expert_bytes < SMALL:
        return None
    found = [hits(made.share)[i] for i in (0, 1)] if made.device == "gpu" else [0.0, 0.0]
    plain = [_window(made, 1, hit) for hit in found]
    drafted = [_window(made, ROWS, hit) for hit in found] if made.drafts and made.device == "gpu" else None
    reached = REACHED[made.resident or made.device == "cpu"]
    speeds = [1 / sum(one.values()) for one in plain]
    faster = None if drafted is None else [ACCEPTED / sum(one.values()) for one in drafted]
    best = max(speeds[1], faster[1] if faster else 0.0)
    wait = plain[0] if faster is None or drafted is None or speeds[1] >= faster[1] else drafted[0]
    prompt, why = _prompt(made)
    return Speed(
        (found[0], found[1]),
        (reached * speeds[0], reached * speeds[1]),
        None if faster is None else (reached * faster[0], reached * faster[1]),
        best,
        max((name for name in wait if name != "starts of kernels"), key=lambda name: wait[name]),
        None if prompt is None else REACHED[1] * prompt,
        why,
        _loaded(made) / (1e9 * made.machine.rates.disk),
    )


def _loaded(made: Plan) -> int:
    """Bytes that are read before the first token."""
    away = sum(one.on_ssd * one.stored for one in made.classes)
    return (made.sizes.stored or made.sizes.expert_bytes + made.sizes.dense) - away


def _window(made: Plan, rows: int, hit: float) -> dict[str, float]:
    """Seconds of a window by what they go to; the shorter of two things that run side by side counts nothing."""
    sizes, rates, reads = made.sizes, made.machine.rates, made.sizes.reads
    assert reads is not None
    behind = min(BEHIND, made.context) * reads.cell + rows * reads.chosen
    drafts = (rows - 1) * reads.draft
    fixed = reads.dense + reads.state + behind + drafts
    visits = UNION[rows] * reads.used * sum(layer.stored for layer in sizes.layers)
    if made.device == "cpu":
        away = _on_ssd(made, 0.0)
        return {
            "dense weights": fixed / (1e9 * rates.cpu),
            "experts in RAM": visits * (1 - away) / (1e9 * rates.cpu),
            "experts on the SSD": visits * away / (1e9 * rates.disk),
        }
    here = visits * hit / (1e9 * rates.vram)
    outside = _on_ssd(made, hit)
    missed = visits * (1 - hit - outside) / (1e9 * (rates.cpu + rates.link))
    read = visits * outside / (1e9 * rates.disk)
    late = missed + read > here
    return {
        "dense weights": fixed / (1e9 * rates.vram),
        "starts of kernels": (LATENCY if rows == 1 else LATENCY_DRAFTS) * rates.start / START,
        "experts in VRAM": 0.0 if late else here,
        "experts in RAM": missed if late else 0.0,
        "experts on the SSD": read if late else 0.0,
    }


def _on_ssd(made: Plan, hit: float) -> float:
    """Share of the visits that find their expert neither in VRAM nor in RAM."""
    if made.arena is not Arena.PART:
        return 0.0
    known = made.slots + sum(one.in_ram for one in made.classes)
    low, high = hits(known / made.sizes.experts)
    return min(1 - hit, 1 - (low + high) / 2)


def _prompt(made: Plan) -> tuple[float | None, str]:
    """Tokens a second of passes as long as they can be, and what bounds them."""
    reads, rates = made.sizes.reads, made.machine.rates
    if made.device == "cpu" or reads is None:
        return None, ""
    out = sum(one.stored * (one.experts - one.in_vram) for one in made.classes)
    far = sum(one.stored * one.on_ssd for one in made.classes)
    if made.lent:  # and those whose slots are borrowed
        more = made.lent * sum(one.stored * one.in_vram for one in made.classes) // made.expert_vram
        out, far = out + more, far + (0 if made.arena is Arena.ALL else more)
    seconds = {
        "computing": made.rows * reads.flops / (UTILISED * 1e12 * rates.tflops),
        "the link": out / (1e9 * rates.link),
        "the SSD": far / (1e9 * rates.disk),
    }
    slowest = max(seconds, key=lambda name: seconds[name])
    return made.rows / seconds[slowest] if seconds[slowest] else None, slowest
