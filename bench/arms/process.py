"""A process of one checkout's code that measures when it is told to."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Process:
    """It runs the same benchmark with `--work`; it prints a line when it is ready, and one for each line it is sent.

    Args:
        name: of the arm.
        script: the benchmark.
        checkout: whose code; this one's if empty.
        given: what it is to do, as JSON behind `--work`.

    Attributes:
        rounds: what it has found.
    """

    def __init__(self, name: str, script: str, checkout: str, given: Any) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [sys.executable, script, "--work", json.dumps(given)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(checkout or ROOT).resolve() / "src")},
        )
        self.rounds: list[dict[str, Any]] = []

    def answer(self) -> Any:
        """The next line it prints.

        Raises:
            SystemExit: it has ended.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self._process.wait()}")
        return json.loads(line)

    def measure(self) -> None:
        """One round."""
        assert self._process.stdin is not None
        print(file=self._process.stdin, flush=True)
        self.rounds.append(self.answer())

    def end(self) -> None:
        """No more rounds."""
        self._process.communicate()
