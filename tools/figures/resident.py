"""The results of tools/gpu_resident.py: a part's beside what earlier runs have left of the others. Pure."""

from collections.abc import Iterable
from typing import Any

from figures.record import Document

BENCH = "bench"
"""Whose results have no name of their own: figures, rounds and conditions lie at the top."""


def begun(document: Document, session: dict[str, Any]) -> Document:
    """A document that knows of one more run: the machine as it was found, and the parts that were asked for."""
    return document | {"sessions": [*document.get("sessions", []), session]}


def merged(document: Document, part: str, found: dict[str, Any], when: str) -> Document:
    """A document with what a part has found, in place of what it found before; failures are results, too.

    Figures stay where a benchmark fails: its failure lies beside them until it succeeds.

    Args:
        document: is not changed.
        part: its name.
        found: what it has found.
        when: the run began, as its session says it.
    """
    if part != BENCH or "failed" in found:
        return document | {part: found | {"when": when}}
    left = {name: value for name, value in document.items() if name != BENCH}
    return left | found | {"conditions": found.get("conditions", {}) | {"when": when}}


def failures(document: Document, parts: Iterable[str]) -> list[str]:
    """Which of some parts have failed, or found errors."""
    found = {part: document.get(part, {}) for part in parts}
    return [part for part, one in found.items() if isinstance(one, dict) and (one.get("failed") or one.get("errors"))]
