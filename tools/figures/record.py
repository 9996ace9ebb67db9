"""The results file: parts as they come, beside what earlier runs have left. Pure, but for reading and writing."""

import json
import os
from pathlib import Path
from typing import Any

from figures.bounds import bounds
from figures.summary import NAMES, figures

Document = dict[str, Any]


def read(path: Path) -> Document:
    """What is there; an empty document if nothing is."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


def write(path: Path, document: Document) -> None:
    """Replace the file in one step: a run that ends in the middle leaves the old one."""
    aside = path.with_name(path.name + ".unfinished")
    aside.write_text(json.dumps(document, indent=1) + "\n")
    os.replace(aside, path)  # noqa: PTH105  # the same


def merged(document: Document, part: str, found: dict[str, Any], *, complete: bool) -> Document:
    """A document with a part's results in it, and the figures and bounds that follow.

    Results of an earlier run stay while a new one has no round yet. A part that is complete has no failure any more.

    Args:
        document: is not changed.
        part: its name.
        found: what it has found so far.
        complete: whether that is all.
    """
    parts = dict(document.get("parts", {}))
    parts[part] = {**found, "complete": complete}
    failures = {name: text for name, text in document.get("failures", {}).items() if not (complete and name == part)}
    return told(document | {"parts": parts, "failures": failures})


def failed(document: Document, part: str, error: str, details: str, seconds: float) -> Document:
    """A document that says what became of a part; whatever it has found before stays."""
    failure = {"error": error, "details": details.splitlines()[-60:], "after_s": round(seconds, 1)}
    return told(document | {"failures": document.get("failures", {}) | {part: failure}})


def told(document: Document) -> Document:
    """The document with figures and bounds as they follow from its parts."""
    known = {name: value for name, value in document.get("figures", {}).items() if name in NAMES}
    now = known | figures(document.get("parts", {}))
    ordered = {name: now[name] for name in NAMES if name in now}
    first = {"figures": ordered, "bounds": bounds(document.get("parts", {}))}
    return first | {key: value for key, value in document.items() if key not in first}


def lacking(document: Document) -> list[str]:
    """Figures that nobody has measured yet."""
    return [name for name in NAMES if document.get("figures", {}).get(name) is None]
