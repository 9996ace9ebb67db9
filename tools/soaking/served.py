"""The server under load: a process of its own, with a log."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from soaking.dialects import MOST
from soaking.watch import get, status

SOURCES = Path(__file__).resolve().parents[2] / "src"
TURNS = 4000
"""Different answers of a script."""


DELAY = 10.0
"""Milliseconds before each word of a script."""


def script(turns: int = TURNS, delay_ms: float = DELAY, model: str = "") -> dict[str, Any]:
    """Answers that nobody can mistake for each other: each word of one has its number, and its model's name."""
    return {"turns": [{"pieces": words(i, model), "delay_ms": delay_ms} for i in range(turns)]}


def words(number: int, model: str = "") -> list[str]:
    """The pieces of an answer of a script; no more than any request asks for."""
    return [f"{model}{number}:{place} " for place in range(20 + number * 7 % (MOST - 20))]


class Server:
    """`strata serve` on a free port.

    Attributes:
        port: where it listens.
        pid: of the server.
        engine: of the engine's process; 0 where models come and go.
        arguments: what it was started with.
    """

    def __init__(self, folder: Path, *, scripted: bool, models: tuple[str, ...] = (), more: list[str]) -> None:
        arguments = ["serve", "--port", "0", "--conversations", "8"]
        if scripted:
            arguments += ["--engine", "scripted", "--reading-ms", "5"]
            for name in models or ("",):
                path = folder / f"{name or 'script'}.json"
                path.write_text(json.dumps(script(model=name)), encoding="utf-8")
                arguments += ["--script", str(path)]
        self.arguments = [*arguments, *more]
        self.log = folder / "server.log"
        environment = os.environ | {"PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "strata", *self.arguments], stderr=log, stdout=log, env=environment
            )
        self.pid = self._process.pid
        self.port = self.engine = 0

    def wait(self, seconds: float = 300.0) -> None:
        """Until it is ready."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended: {self.log.read_text()[-2000:]}")
            self.port = self.port or self._port()
            if self.port and get(self.port, "/health")[0] == 200:
                engines = [p["pid"] for p in status(self.port)["processes"] if p["kind"] == "engine"]
                self.engine = engines[0] if len(engines) == 1 else 0
                return
            time.sleep(0.1)
        raise RuntimeError(f"the server was not ready within {seconds:g} s: {self.log.read_text()[-2000:]}")

    def _port(self) -> int:
        for word in self.log.read_text(encoding="utf-8").split():
            if word.startswith("http://127.0.0.1:"):
                return int(word.removeprefix("http://127.0.0.1:").strip("/.,"))
        return 0

    def end(self, seconds: float = 30.0) -> tuple[int, float]:
        """SIGTERM; returns the exit code, and how long it took."""
        began = time.monotonic()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        return code, time.monotonic() - began
