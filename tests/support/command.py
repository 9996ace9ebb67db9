"""Running the `strata` command as a process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "strata"]


def environment(**more: str) -> dict[str, str]:
    """A clean environment: our sources, one thread, no config file of the user's."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    sources = str(Path(__file__).parents[2] / "src")
    return kept | {"PYTHONPATH": sources, "OMP_NUM_THREADS": "1", "XDG_CONFIG_HOME": "/nowhere"} | more


def strata(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run to the end and collect the output."""
    return subprocess.run(
        [*COMMAND, *arguments],
        check=False,
        **({"env": environment(), "capture_output": True, "text": True, "stdin": subprocess.DEVNULL} | options),
    )
