"""What is looked at while the load is on: health, memory, and when requests end."""

import contextlib
import http.client
import json
import math
import os
import threading
import time
from pathlib import Path
from typing import Any

HEALTH = 0.1
"""Seconds between two looks at health."""

STATUS = 0.2
"""Seconds between two looks at the status."""


def get(port: int, path: str, seconds: float = 30.0) -> tuple[int, bytes]:
    """Ask once, on a connection of its own."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        link.request("GET", path)
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def status(port: int) -> Any:
    """One look at the server."""
    return json.loads(get(port, "/v1/strata/status")[1])


class Repeat:
    """Does something again and again in a thread, until it is stopped."""

    def __init__(self, pause: float) -> None:
        self._pause = pause
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def once(self) -> None:
        """What is done."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            self.once()


class Health(Repeat):
    """Asks for health, each time on a new connection, as a probe does.

    Attributes:
        seconds: how long each answer took, connecting and all.
        bad: answers that were not 200, by what they were.
    """

    def __init__(self, port: int) -> None:
        super().__init__(HEALTH)
        self._port = port
        self.seconds: list[float] = []
        self.bad: dict[str, int] = {}

    def once(self) -> None:
        """One look."""
        began = time.perf_counter()
        try:
            code, _ = get(self._port, "/health")
            what = "" if code == 200 else str(code)
        except (OSError, http.client.HTTPException) as error:
            what = type(error).__name__
        self.seconds.append(time.perf_counter() - began)
        if what:
            self.bad[what] = self.bad.get(what, 0) + 1


class Ends(Repeat):
    """Notes when requests are over, from the status.

    Attributes:
        ended: seconds since 1970, and how, by the request's name.
        most: conversations seen under way at once in the engine.
        windows: windows and passes seen between the first look and the last, and the seconds between these.
    """

    def __init__(self, port: int) -> None:
        super().__init__(STATUS)
        self._port = port
        self.ended: dict[str, tuple[float, str]] = {}
        self.most = 0
        self.waiting = 0
        self.last: Any = None

    def once(self) -> None:
        """One look; it is not lost if the server is busy, the next one has it."""
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            now = status(self._port)
            for one in now["recent"]:
                self.ended.setdefault(one["id"], (one["ended"], one["outcome"]))
            states = [one["state"] for one in now["requests"]]
            self.most = max(self.most, len(states) - states.count("waiting"))
            self.waiting = max(self.waiting, states.count("waiting"))
            self.last = now


class Process(Repeat):
    """Memory, open files and threads of a process, once a second.

    Attributes:
        samples: monotonic seconds, bytes resident, files, threads.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(1.0)
        self.pid = pid
        self.samples: list[tuple[float, int, int, int]] = []

    def once(self) -> None:
        """One look."""
        with contextlib.suppress(OSError):
            self.samples.append((time.monotonic(), *look(self.pid)))


def look(pid: int) -> tuple[int, int, int]:
    """Bytes resident that are its own, not a file's; open files; threads."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    told = dict(line.split(":", 1) for line in lines)
    own = int(told["RssAnon"].split()[0]) << 10
    return own, len(os.listdir(f"/proc/{pid}/fd")), int(told["Threads"])  # noqa: PTH208  # faster


def slope(samples: list[tuple[float, float]], stretch: float = 30.0) -> tuple[float, float]:
    """Least squares: units a second, and half of its 95% interval (infinite where that cannot be said).

    Samples of one half-minute say nearly the same: an allocator moves in steps. So the means of stretches of that many
    seconds are taken, each for one observation.
    """
    parts = int((samples[-1][0] - samples[0][0] + 1) / stretch) if samples else 0
    if parts < 4:
        return 0.0, math.inf
    size = len(samples) / parts
    points = []
    for part in range(parts):
        some = samples[round(part * size) : round((part + 1) * size)]
        points.append((sum(t for t, _ in some) / len(some), sum(v for _, v in some) / len(some)))
    middle = sum(t for t, _ in points) / parts
    level = sum(v for _, v in points) / parts
    spread = sum((t - middle) ** 2 for t, _ in points)
    rise = sum((t - middle) * (v - level) for t, v in points) / spread
    left = sum((v - level - rise * (t - middle)) ** 2 for t, v in points)
    free = parts - 2
    student = 1.96 + 2.6 / free + 3 / free**2  # of 95%, to within 2% from two degrees of freedom on
    return rise, student * math.sqrt(left / free / spread)


def quantile(values: list[float], share: float) -> float:
    """The value that so many do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0
