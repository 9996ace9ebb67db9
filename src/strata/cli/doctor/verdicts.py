"""What the facts mean: what will work here and what will not."""

from dataclasses import dataclass
from enum import StrEnum

from strata.cli.doctor.facts import Facts
from strata.loading.ram import shown_bytes

_BITS = 4  # a weight, in a file of middling size


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
    fits = 8 * facts.memory.available / _BITS / 1e9
    return Verdict(
        Level.NOTE,
        f"Other files run if they fit: weights stay in RAM as the file stores them, so about {fits:.0f} billion of "
        f"{_BITS} bits each in the {shown_bytes(facts.memory.available)} available. `strata inspect FILE` says what a "
        "file needs.",
    )


def _gpu(facts: Facts) -> Verdict:
    if not facts.gpus:
        return Verdict(Level.NOTE, "No NVIDIA GPU was found. This version computes on the CPU, so none is missed.")
    names = ", ".join(gpu.name for gpu in facts.gpus)
    return Verdict(Level.NOTE, f"{names} will not be used: this version computes on the CPU alone.")
