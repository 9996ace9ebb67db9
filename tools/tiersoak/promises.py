"""Numbers of a run, and the promises that they keep or break."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strata.model import Network
from tiersoak.memory import BOUNDS, MB, Watch


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise.

    Attributes:
        name: in words.
        number: what was measured.
        kept: whether it holds; None where the run is too short to say.
    """

    name: str
    number: str
    kept: bool | None

    def __str__(self) -> str:
        return f"{ {True: 'kept  ', False: 'BROKEN', None: 'short '}[self.kept] } {self.name}: {self.number}"


def taken(network: Network) -> dict[str, int]:
    """What conversations still hold of a pool that nobody uses any more; nobody has looked for circles before."""
    pool: Any = network.ops._pool  # type: ignore[attr-defined]  # noqa: SLF001
    return {"cells": pool.cells - pool.free_cells, "slots": pool.slots - len(pool._slots)}  # noqa: SLF001


def promises(count: Mapping[str, int], watch: Watch, left: Mapping[str, int], *, short: bool) -> list[Promise]:
    """What came of them.

    Args:
        count: what happened.
        watch: memory.
        left: what is still taken behind the last request.
        short: too little happened for memory to say anything.
    """
    differ, compared = count["tokens that differ"], count["tokens compared"]
    same = not differ and compared > 0
    found = [
        Promise("every token is that of all experts in VRAM", f"{differ} of {compared} differ", same),
        Promise("nothing else goes wrong", f"{count['wrong']} times", not count["wrong"]),
        Promise("slots came and went", f"{count['resizes']} times", count["resizes"] > 0 or None),
        Promise("experts moved meanwhile", str(count["moves"]), count["moves"] > 0 or None),
        Promise("nothing is taken behind the last request", str(dict(left)), not any(left.values())),
    ]  # fmt: skip
    for name, grown in watch.grown().items():
        if grown is None:
            found.append(Promise(f"{name} is flat", "too few samples", None))
            continue
        first, last, kept = grown
        unit, by = ("MB", MB) if BOUNDS[name] >= MB else ("", 1)
        number = f"{first / by:,.1f} {unit} and {last / by:,.1f}, by at most {BOUNDS[name] / by:g} more"
        found.append(Promise(f"{name} is flat", number, None if short else kept))
    return found
