"""What the facts mean: what will work here and what will not."""

from dataclasses import dataclass
from enum import StrEnum

from strata.cli.doctor.facts import Facts
from strata.loading.ram import shown_bytes


class Level(StrEnum):
    """How good the news is."""

    GOOD = "ok"
    NOTE = "note"
    BAD = "no"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One sentence about what works."""

    level: Level
    text: str


def verdicts(facts: Facts, box: str | None) -> list[Verdict]:
    """Judge a machine.

    Args:
        facts: its numbers.
        box: why the model in the box cannot run; None if it can.
    """
    return [_box(box), _own(facts), _gpu(facts)]


def _box(problem: str | None) -> Verdict:
    if problem is None:
        return Verdict(Level.GOOD, 'The model in the box runs: try `strata chat "Count from 1 to 20."`')
    return Verdict(Level.BAD, f"The model in the box does not run: {problem}")


def _own(facts: Facts) -> Verdict:
    fits = facts.memory.available / 4 / 1e9
    return Verdict(
        Level.NOTE,
        f"Other files run if they fit: this version takes float32 in RAM, so about {fits:.1f} billion weights in the "
        f"{shown_bytes(facts.memory.available)} available. The 125 billion of Qwen3.8-Flash-Next need "
        f"{shown_bytes(500 * 10**9)}; computing on quantised weights is what the next versions are for.",
    )


def _gpu(facts: Facts) -> Verdict:
    if not facts.gpus:
        return Verdict(Level.NOTE, "No NVIDIA GPU was found. This version computes on the CPU, so none is missed.")
    names = ", ".join(gpu.name for gpu in facts.gpus)
    return Verdict(Level.NOTE, f"{names} will not be used: this version computes on the CPU alone.")
