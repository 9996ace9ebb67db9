"""Our rule's parameters, each varied around the chosen ones."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from strata.lab.routing.compare import Case, Score, score
from strata.memory.slots import Rule

SHARES = (0.12, 0.32, 0.5)

VARIED: dict[str, tuple[float, ...]] = {
    "decay": (0.8, 0.9, 0.95, 0.97, 0.99, 0.995),
    "slow": (0.99, 0.995, 0.999, 0.9997),
    "share": (0.0, 0.02, 0.1, 0.2),
    "margin": (0.0, 0.5, 1.0, 3.0, 5.0),
}

MOVES = (2, 4, 8, 32, 96)


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a choice of parameters came to.

    Attributes:
        changed: what differs from the chosen ones.
        rule: the parameters.
        moves: copies that may begin after a window.
        scores: by size.
    """

    changed: str
    rule: Rule
    moves: int
    scores: tuple[Score, ...]

    @property
    def text(self) -> str:
        """One line: hits, moves, and experts that cross the link or wait for the CPU (misses and moves), by size."""
        sizes = (
            f"{each.share:.0%}: {each.hits:.2%} {each.moves:5.1f} {each.misses + each.moves:6.1f}"
            for each in self.scores
        )
        return f"{self.changed:16s} " + "   ".join(sizes)

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "changed": self.changed,
            "rule": asdict(self.rule),
            "moves": self.moves,
            "scores": [asdict(each) for each in self.scores],
        }


def tuned(played: Case, moves: int) -> Iterator[Tuned]:
    """The chosen parameters, then each of them changed alone."""
    chosen = Rule()

    def play(changed: str, rule: Rule, moves: int) -> Tuned:
        return Tuned(changed, rule, moves, tuple(score("counted", each, moves, played, rule) for each in SHARES))

    yield play("chosen", chosen, moves)
    for name, values in VARIED.items():
        for value in values:
            yield play(f"{name} {value:g}", replace(chosen, **{name: value}), moves)
    for each in MOVES:
        yield play(f"moves {each}", chosen, each)
