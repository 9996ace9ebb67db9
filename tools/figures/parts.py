"""What is measured, in the order in which it is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from figures import bandwidths, correct, host, misses, prompts, restore, stocked, windows
from figures.session import Session


@dataclass(frozen=True, slots=True)
class Part:
    """One of them.

    Attributes:
        run: measures, and returns what it found.
        seconds: it may take; then the process ends and another goes on with the next part.
        arms: networks of the large file that it needs.
        small: needs the file of a few layers.
        large: needs the large file.
        asked: only for who names it.
    """

    run: Callable[[Session], dict[str, Any]]
    seconds: float
    arms: tuple[str, ...] = ()
    small: bool = False
    large: bool = False
    asked: bool = False


def _decode(session: Session) -> dict[str, Any]:
    found = windows.turns(session, ("resident", "none", "half"))
    if session.device.type == "cuda":
        found["link_bring_gbs"] = round(prompts.link(session.arms("none")["none"], session.device), 2)
    return found


def _caps(session: Session) -> dict[str, Any]:
    return windows.turns(session, ("resident", "cap24", "cap12"))


PARTS: dict[str, Part] = {
    "correct": Part(correct.windows, 240, small=True),
    "correct_prompts": Part(correct.prompts, 150, small=True),
    "correct_disk": Part(stocked.disk, 150, small=True),
    "bandwidths": Part(bandwidths.bandwidths, 60, large=True),
    "host": Part(host.host, 90),
    "decode": Part(_decode, 240, ("resident", "none", "half"), large=True),
    "prompt_none": Part(prompts.none, 70, ("none",), large=True),
    "prompt_rings": Part(prompts.rings, 60, ("none",), large=True),
    "caps": Part(_caps, 120, ("resident", "cap24", "cap12"), large=True),
    "prompt_cap24": Part(prompts.cap24, 60, ("cap24",), large=True),
    "restore": Part(restore.restore, 90, ("resident",), large=True),
    "misses": Part(misses.misses, 200, ("cap24",), large=True, asked=True),
    "nodes": Part(windows.nodes, 60, ("resident", "none"), large=True),
}

REHEARSED = (("host",), ("restore",), ("decode", "prompt_none"), ("caps", "prompt_cap24"))
"""Parts that are run once on the small file, so that kernels are compiled: each group in a process of its own."""

BYTES = tuple(name for name, part in PARTS.items() if part.small)
SPEED = tuple(name for name, part in PARTS.items() if not (part.small or part.asked))
GROUPS = {"bytes": BYTES, "speed": SPEED}
"""Names for several parts."""


def chosen(names: list[str]) -> list[str]:
    """Parts by their names or their groups', in their order."""
    wanted = {part for name in names for part in GROUPS.get(name, (name,))}
    return [name for name in PARTS if name in wanted]
