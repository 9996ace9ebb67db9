"""The recorded counts: one JSON file per Triton version, reviewed like code."""

import json
from dataclasses import asdict
from pathlib import Path

from strata.errors import StrataError
from strata.lab.codegen.counts import Counts

Baseline = dict[tuple[str, int], Counts]

FOLDER = Path(__file__).parent / "baselines"


def path(version: str) -> Path:
    """Where a compiler version's counts are."""
    return FOLDER / f"triton-{version}.json"


def read(version: str) -> Baseline:
    """The counts recorded for a compiler version.

    Raises:
        StrataError: there are none.
    """
    file = path(version)
    if not file.exists():
        known = ", ".join(sorted(f.stem.removeprefix("triton-") for f in FOLDER.glob("triton-*.json"))) or "none"
        raise StrataError(
            f"no kernel counts are recorded for Triton {version} (recorded: {known}); record them with --update"
        )
    table = json.loads(file.read_text())
    return {(name, int(arch)): Counts(**counts) for name, row in table.items() for arch, counts in row.items()}


def write(version: str, counts: Baseline) -> Path:
    """Record counts, replacing all recorded before for this version."""
    table: dict[str, dict[str, object]] = {}
    for (name, architecture), one in sorted(counts.items()):
        table.setdefault(name, {})[str(architecture)] = asdict(one)
    FOLDER.mkdir(exist_ok=True)
    lines = [
        f" {json.dumps(name)}: {{\n" + ",\n".join(f'  "{a}": {json.dumps(c)}' for a, c in row.items()) + "\n }"
        for name, row in table.items()
    ]
    file = path(version)
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return file
