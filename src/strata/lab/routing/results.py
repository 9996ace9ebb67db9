"""Results as a file beside the command that made them, and as tables of a page."""

import json
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numba
import numpy as np

import strata
from strata.errors import StrataError


def conditions() -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    return {
        "command": "python -m strata.lab.routing " + " ".join(sys.argv[1:]),
        "versions": {
            "strata": strata.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "numba": numba.__version__,
        },
        "processors": os.cpu_count(),
    }


def write(path: Path, text: str) -> None:
    """Keep a result; its folder is made if it is not there.

    Raises:
        StrataError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StrataError(f"the result cannot be written to {path}: {error.strerror or error}") from error


def write_json(path: Path, result: dict[str, Any]) -> None:
    """Keep a result with its conditions.

    Raises:
        StrataError: it cannot be written.
    """
    write(path, json.dumps({"conditions": conditions(), **result}, indent=1) + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of a page, numbers to the right."""
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])
