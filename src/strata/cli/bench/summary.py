"""From measured values to what they say: medians, and intervals of paired ratios. Pure arithmetic."""

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RESAMPLES = 2000
"""Of the bootstrap."""


@dataclass(frozen=True, slots=True)
class Row:
    """One arm of one workload.

    Attributes:
        workload: what was done.
        arm: how.
        unit: of the values.
        values: one a round.
        median: of the values.
        low: lower end of the 95% interval of the median.
        high: upper end.
        ratio: median of the values over the first arm's of the same round; None for the first arm itself.
        ratio_low: lower end of the 95% interval of that.
        ratio_high: upper end.
    """

    workload: str
    arm: str
    unit: str
    values: tuple[float, ...]
    median: float
    low: float
    high: float
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None


def summarise(workload: str, unit: str, arms: Mapping[str, Sequence[float]]) -> list[Row]:
    """Rows of a workload, in the order of its arms; the first is what the others are compared with."""
    first = next(iter(arms.values()))
    rows = []
    for place, (arm, values) in enumerate(arms.items()):
        low, high = interval(values)
        row = Row(workload, arm, unit, tuple(values), statistics.median(values), low, high)
        if place:
            ratios = [value / base for value, base in zip(values, first, strict=True)]
            ends = interval(ratios)
            row = Row(workload, arm, unit, row.values, row.median, low, high, statistics.median(ratios), *ends)
        rows.append(row)
    return rows


def interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float]:
    """Where the median lies, by the percentile bootstrap; the same for the same values."""
    dice = random.Random(0)  # noqa: S311  # resampling
    medians = sorted(statistics.median(dice.choices(values, k=len(values))) for _ in range(RESAMPLES))
    cut = round((1 - confidence) / 2 * RESAMPLES)
    return medians[cut], medians[-1 - cut]


def order(arms: Sequence[str], turn: int) -> list[str]:
    """The arms of a round: forwards and backwards in turn, so that what drifts hits all alike."""
    return list(arms) if turn % 2 == 0 else list(reversed(arms))
