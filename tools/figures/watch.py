"""The process that watches: it has files written and kernels compiled, then others measure; none is waited for ever."""

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from figures import record
from figures.parts import PARTS, REHEARSED, chosen
from figures.worker import BROKEN, CAREFUL, FAILED, PATIENT, stacks

ROOT = Path(__file__).resolve().parents[2]
LATER = 20.0
"""Seconds a process may take beyond its limit to end itself."""

PREPARING = 170.0
"""Seconds that files and kernels may take."""


def watch(given: argparse.Namespace) -> int:
    """Run what is asked for; 1 if anything failed or a figure of it is missing."""
    began, wanted = time.monotonic(), chosen(given.only)
    end = began + given.within
    given.disk.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        _without_failure(given.json, name)
    _prepare(given, wanted, min(PREPARING, given.within))
    left = wanted
    while left:
        seconds = end - time.monotonic()
        if seconds < 10:
            for name in left:
                _note(given.json, name, f"not begun: the {given.within:.0f} s were over", "", 0.0)
            break
        left = _measured(given, left, seconds)
    stacks(given.json).unlink(missing_ok=True)
    document = record.told(record.read(given.json))
    record.write(given.json, document)
    failures = {name: text["error"] for name, text in document.get("failures", {}).items() if name in wanted}
    print(f"== {time.monotonic() - began:.0f} s in all")
    for name, value in document.get("figures", {}).items():
        bound = document.get("bounds", {}).get(name, {}).get("bound")
        print(f"{name:24} {value:12.3f}" + (f"   bound {bound:.3f}" if bound is not None else ""))
    print(f"not measured: {', '.join(record.lacking(document)) or 'nothing'}; failed: {failures or 'nothing'}")
    return int(bool(failures))


def _measured(given: argparse.Namespace, names: Sequence[str], seconds: float) -> list[str]:
    """Let a process measure; what is left for the next one."""
    command = [
        *_command(given), "--worker", "--only", *names, "--within", f"{seconds:.0f}", "--json", str(given.json),
        "--model", str(given.model), "--small", str(given.small),
    ]  # fmt: skip
    process = _Process("", command)
    at, since = -1, time.monotonic()
    while process.running:
        time.sleep(0.2)
        begun = process.begun(names)
        if begun != at:
            at, since = begun, time.monotonic()
        limit = CAREFUL * PARTS[names[at]].seconds * (PATIENT if given.tiny else 1) if at >= 0 else 60.0
        if time.monotonic() - since > limit + LATER:
            process.kill()
    if process.status in {0, FAILED}:
        return []
    at = max(at, 0)
    name, took = names[at], time.monotonic() - since
    if process.status != BROKEN:
        where = stacks(given.json)
        text = where.read_text() if where.exists() else ""
        why = f"the process ended with {process.status} after {took:.0f} s of this part; {process.last}"
        _note(given.json, name, why, text, took)
    print(f"== {name} ended its process ({process.status}); a new one goes on", flush=True)
    return list(names[at + 1 :])


def _prepare(given: argparse.Namespace, wanted: Sequence[str], seconds: float) -> None:
    """Write the files and, meanwhile, run everything once on the small one, so that kernels are on disk."""
    small = any(PARTS[name].small for name in wanted) or not given.warm
    large = any(PARTS[name].large for name in wanted)
    began = time.monotonic()
    writing = _Process("large file", _synthetic(given.model)) if large and not given.model.exists() else None
    if small and not given.small.exists():
        _Process("small file", _synthetic(given.small, "--layers", "4")).wait(seconds)
    rehearsals = []
    if not given.warm:
        for names in filter(None, ([name for name in group if name in wanted] for group in REHEARSED)):
            out = given.scratch / f"strata-rehearsal-{names[0]}.json"
            out.unlink(missing_ok=True)
            files = ["--model", str(given.small), "--small", str(given.small), "--json", str(out)]
            more = ["--worker", "--rehearse", "--only", *names, "--within", f"{seconds:.0f}"]
            rehearsals.append(_Process(f"rehearsal: {names[0]}", [*_command(given), *more, *files]))
    for process in filter(None, (writing, *rehearsals)):
        process.wait(max(5.0, began + seconds - time.monotonic()))
        print(f"== {process.name}: {process.status}, {time.monotonic() - began:.1f} s", flush=True)


def _command(given: argparse.Namespace) -> list[str]:
    more = ["--device", given.device, "--disk", str(given.disk), "--scratch", str(given.scratch)]
    return [sys.executable, "-u", str(ROOT / "tools" / "gpu_tiers.py"), *more, *(["--tiny"] if given.tiny else [])]


def _synthetic(path: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "strata.lab.synthetic", str(path), *more]


def _without_failure(path: Path, name: str) -> None:
    document = record.read(path)
    if name in document.get("failures", {}):
        del document["failures"][name]
        record.write(path, document)


def _note(path: Path, name: str, error: str, details: str, seconds: float) -> None:
    record.write(path, record.failed(record.read(path), name, error, details, seconds))


class _Process:
    """A process whose lines are shown as they come, behind the seconds since we began."""

    _began = time.monotonic()

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name, self.last = name, ""
        environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"}
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            process_group=0,  # and of our session, so that whoever ends all of that ends it too
        )  # fmt: skip
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.last = line.strip() or self.last
            self._lines.append(line)
            mark = f"[{self.name}] " if self.name else ""
            print(f"{time.monotonic() - self._began:6.1f} {mark}{line}", end="", flush=True)

    def begun(self, names: Sequence[str]) -> int:
        """Number of the part that has begun last; -1 before the first."""
        marks = [line.split()[1].rstrip(":") for line in list(self._lines) if line.startswith("== ")]
        found = [names.index(mark) for mark in marks if mark in names]
        return found[-1] if found else -1

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    @property
    def status(self) -> int | None:
        """With which it ended."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        """Until it ends by itself, or after so long by us."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """End it, and whatever it has started."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(5)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()
