"""Renders a chat template in a process with limits on time, memory and size."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from strata.errors import TextError

_PROGRAM = Path(__file__).with_name("render_worker.py")


@dataclass(frozen=True)
class Limits:
    """What one rendering may use.

    Attributes:
        seconds: CPU time; the process is ended by the kernel when it is used up. CPU time rather than time on the
            wall, so that a busy machine does not refuse good prompts.
        characters: Length of the result. 8 million are several times the longest context.
        memory: Address space of the process in bytes.
        patience: Time on the wall after which a process that uses no CPU is given up, in seconds.
    """

    seconds: float = 2.0
    characters: int = 8_000_000
    memory: int = 512 * 2**20
    patience: float = 30.0


class Renderer:
    """A compiled template behind a pipe.

    The process is started at once, so that a template with a syntax error is refused when a model is loaded, and again
    after it was ended by a limit or by a fork of this process. One rendering at a time; safe to share between threads.
    """

    def __init__(self, template: str, marks: dict[str, str], limits: Limits) -> None:
        """Compile a template.

        Args:
            template: Jinja source.
            marks: Control-token text to the mark that stands for it in the result, where the template's own literals
                contain it.
            limits: What one rendering may use.

        Raises:
            TextError: The template cannot be compiled within the limits.
        """
        self._limits = limits
        self._setup = {
            "template": template,
            "marks": marks,
            "path": [entry for entry in sys.path if entry],
            "seconds": limits.seconds,
            "characters": limits.characters,
            "memory": limits.memory,
        }
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._end: weakref.finalize[..., Renderer] | None = None
        with self._lock:
            self._running()

    def render(self, variables: dict[str, object]) -> str:
        """The text that the template makes of some variables.

        Raises:
            TextError: The variables are not JSON data, the template raised (the text is its own), failed, or went over
                a limit.
        """
        try:
            request = json.dumps(variables, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as wrong:  # a lone surrogate is a ValueError
            raise TextError(f"The messages or tools are not JSON data: {wrong}.") from wrong
        if self._owner != os.getpid():  # a fork: the pipe and the lock belong to the parent
            self._lock, self._process, self._owner = threading.Lock(), None, os.getpid()
            self._end = None
        with self._lock:
            return cast("str", _result(self._exchange(self._running(), request)))

    def close(self) -> None:
        """End the process; the next rendering starts another."""
        if self._owner == os.getpid():
            with self._lock:
                self._stop()

    def _stop(self) -> None:
        if self._end is not None:
            self._end()

    def _running(self) -> "subprocess.Popen[bytes]":
        """The process, started and with the template compiled."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._stop()
        # -I and -S: nothing but the standard library until the set-up brings this process's own search path.
        command = [sys.executable, "-I", "-S", str(_PROGRAM)]
        try:
            process = subprocess.Popen(  # noqa: S603  # our own program
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal is for us
            )
        except (OSError, TypeError) as wrong:  # TypeError: an embedded interpreter has no sys.executable
            raise TextError(f"The process that renders chat templates cannot be started: {wrong}.") from wrong
        self._process = process
        self._end = weakref.finalize(self, _end, process, os.getpid())  # at exit too; a second call does nothing
        _result(self._exchange(process, json.dumps(self._setup).encode()))
        return process

    def _exchange(self, process: "subprocess.Popen[bytes]", request: bytes) -> dict[str, Any]:
        """One line there, one line back."""
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request + b"\n")
            process.stdin.flush()
            return cast("dict[str, Any]", json.loads(_line(process.stdout.fileno(), self._limits.patience)))
        except (OSError, EOFError, TimeoutError, ValueError) as broken:
            self._stop()
            if process.returncode == -signal.SIGPROF:
                raise TextError(
                    f"The chat template takes more than {self._limits.seconds:g} s to render; it was ended."
                ) from broken
            raise TextError(
                f"The process that renders chat templates ended unexpectedly (status {process.returncode}): "
                f"{broken or 'no answer'}. The template may need more memory than it may have."
            ) from broken


def _result(answer: dict[str, Any]) -> object:
    if "raised" in answer:
        raise TextError(f"The chat template refuses these messages: {answer['raised']}")
    if "failed" in answer:
        raise TextError(f"The chat template failed: {answer['failed']}")
    if "limit" in answer:
        raise TextError(f"The chat template {answer['limit']}.")
    return answer["ok"]


def _line(descriptor: int, patience: float) -> bytes:
    """Bytes up to the next newline; one answer is under way at a time, so nothing may follow it."""
    deadline = time.monotonic() + patience
    parts: list[bytes] = []
    with selectors.DefaultSelector() as ready:
        ready.register(descriptor, selectors.EVENT_READ)
        while not (parts and parts[-1].endswith(b"\n")):
            if not ready.select(max(0.0, deadline - time.monotonic())):
                raise TimeoutError(f"no answer within {patience:g} s")
            part = os.read(descriptor, 1 << 20)
            if not part:
                raise EOFError("the pipe was closed")
            parts.append(part)
    return b"".join(parts)


def _end(process: "subprocess.Popen[bytes]", owner: int) -> None:
    """End a process that this one started; in a fork, leave it to the parent."""
    if owner != os.getpid():
        return
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(OSError):  # a request that nobody reads any more
                pipe.close()
    process.wait()
