"""Every way of drafting on every machine, for texts that are easy or hard to guess."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from strata.lab.routing.drafting import RULES, Acceptance, Outcome, play, text
from strata.lab.routing.machine import MACHINES

PERIOD = 300
"""Tokens after which a changing text is of the other kind."""


def always(rate: float) -> Acceptance:
    """A text that is equally easy to guess everywhere."""
    return lambda _: rate


def changing(at: int) -> float:
    """Easy and hopeless in turn."""
    return 0.9 if at // PERIOD % 2 else 0.1


TEXTS: dict[str, Acceptance] = {
    "0%": always(0.0),
    "20%": always(0.2),
    "40%": always(0.4),
    "65%": always(0.65),
    "85%": always(0.85),
    "95%": always(0.95),
    "90% and 10% in turn": changing,
}
"""By how many guesses are right."""


@dataclass(frozen=True, slots=True)
class Drafted:
    """One way of drafting, one machine, one text.

    Attributes:
        machine: its name.
        right: guesses that are right, in words.
        rule: how drafts are made.
        outcome: what came of it.
        against_none: times the speed without drafts.
    """

    machine: str
    right: str
    rule: str
    outcome: Outcome
    against_none: float

    @property
    def text(self) -> str:
        """One line."""
        o = self.outcome
        return (
            f"{self.machine:38s} {self.right:20s} {self.rule:24s} {o.speed:6.1f} tokens/s {self.against_none:5.2f} x   "
            f"{o.depth:4.2f} drafts {o.tokens:4.2f} tokens {o.hits:.1%} hits {o.moved:4.1f} moves"
        )

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "machine": self.machine,
            "right": self.right,
            "rule": self.rule,
            "against_none": round(self.against_none, 4),
            **{name: round(value, 4) for name, value in asdict(self.outcome).items()},
        }


def drafted(tokens: int, seed: int) -> Iterator[Drafted]:
    """All of them."""
    given = text(tokens, seed)
    for machine in MACHINES:
        for right, acceptance in TEXTS.items():
            none = play(given, machine, acceptance, RULES["none"])
            for name, rule in RULES.items():
                outcome = none if name == "none" else play(given, machine, acceptance, rule)
                yield Drafted(machine.name, right, name, outcome, outcome.speed / none.speed)
