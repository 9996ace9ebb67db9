"""Engines with bad manners, for the process they are put into (`strata.worker.CustomEngine`)."""

import os
import signal
import sys
import time
from collections import deque
from typing import Any

import msgspec

from strata.errors import RequestError, RoomError, TierError
from strata.worker import messages as m


class Engine:
    """Says "ok" to everything, one request a tick."""

    def __init__(self) -> None:
        self.waiting: deque[m.Submit] = deque()
        self.ready = m.Ready("custom", 100, 100, m.Limits(1, 8), "custom", engine="custom")

    @property
    def idle(self) -> bool:
        return not self.waiting

    def wait(self) -> float:
        return 0.0

    def submit(self, request: m.Submit) -> None:
        self.waiting.append(request)

    def cancel(self, request: str) -> None:
        self.waiting = deque(one for one in self.waiting if one.id != request)

    def tick(self) -> list[Any]:
        request = self.waiting.popleft()
        done = m.Finished(request.id, "stop", m.Usage(len(request.prompt), generated=1))
        return [m.Tokens(request.id, (m.Piece(1, b"ok"),)), done]

    def stats(self) -> dict[str, Any]:
        return {}

    def holdings(self) -> m.Holdings:
        return m.Holdings()

    def trace(self, windows: int | None = None) -> bytes:  # noqa: ARG002  # it has none
        return b"{}"

    def resize(self, vram: int, nonce: int = 0) -> m.Resized:
        raise RequestError(f"no {vram} of {nonce}")

    def close(self) -> None:
        pass


def plain(_values: dict[str, Any], _on_load: Any) -> Engine:
    """Nothing wrong with it."""
    return Engine()


def resizable(_values: dict[str, Any], _on_load: Any) -> Engine:
    """Takes any share of a GPU, but few are refused, each in a way of its own."""

    class Resizable(Engine):
        def resize(self, vram: int, nonce: int = 0) -> m.Resized:
            errors = {1: RequestError, 2: RoomError, 3: TierError, 4: RuntimeError}
            if vram in errors:
                raise errors[vram](f"no {vram}")
            self.ready = msgspec.structs.replace(self.ready, placed=f"{vram} bytes")
            return m.Resized(nonce, vram, self.ready.placed, vram // 1000, 10, vram - 1000)

    return Resizable()


def deadly(values: dict[str, Any], _on_load: Any) -> Engine:
    """Dies of a request whose salt says so, before it has said anything."""

    class Deadly(Engine):
        def submit(self, request: m.Submit) -> None:
            if request.salt == "poison":
                os.kill(os.getpid(), values.get("signal", signal.SIGKILL))
            super().submit(request)

    return Deadly()


def watched(values: dict[str, Any], _on_load: Any) -> Engine:
    """Says of itself what it was told to say."""

    class Watched(Engine):
        def stats(self) -> dict[str, Any]:
            return values["stats"]

        def holdings(self) -> m.Holdings:
            time.sleep(values.get("slow", 0.0))
            return msgspec.convert(values["holdings"], m.Holdings)

    return Watched()


def stillborn(values: dict[str, Any], on_load: Any) -> Engine:
    """Dies while it loads, as long as a file is there."""
    on_load(1, 2)
    if os.path.exists(values["file"]):  # noqa: PTH110
        if values.get("memory"):
            raise MemoryError
        os.kill(os.getpid(), signal.SIGSEGV)
    return Engine()


def garbled(_values: dict[str, Any], _on_load: Any) -> Engine:
    """Writes into the messages for a request whose salt says so."""

    class Garbled(Engine):
        def submit(self, request: m.Submit) -> None:
            if request.salt == "garbage":
                os.write(int(sys.argv[1]), b"\xff" * 64)
            super().submit(request)

    return Garbled()


def talkative(_values: dict[str, Any], _on_load: Any) -> Engine:
    """Prints."""
    print("to stdout", flush=True)
    print("to stderr", "\udcff", "x" * 10000, file=sys.stderr, flush=True)
    return Engine()


def saving(values: dict[str, Any], _on_load: Any) -> Engine:
    """Takes a while to write a file when it is closed."""

    class Saving(Engine):
        def close(self) -> None:
            time.sleep(values["seconds"])
            with open(values["file"], "w", encoding="ascii") as file:  # noqa: PTH123
                file.write("saved")

    return Saving()


def orphan(_values: dict[str, Any], _on_load: Any) -> Engine:
    """Hangs at the first request, and gives up soon when its client is gone."""
    from strata.worker import process

    process.GRACE = 0.3

    class Hanging(Engine):
        def tick(self) -> list[Any]:
            while True:
                time.sleep(10)

    return Hanging()


def broken(_values: dict[str, Any], _on_load: Any) -> Engine:
    """Raises from its loop, and from taking a request whose salt says so."""

    class Broken(Engine):
        def submit(self, request: m.Submit) -> None:
            if request.salt == "raise":
                raise ZeroDivisionError("in submit")
            super().submit(request)

        def tick(self) -> list[Any]:
            if self.waiting[0].salt == "tick":
                raise ZeroDivisionError("in tick")
            return super().tick()

    return Broken()


def scarce(values: dict[str, Any], _on_load: Any) -> Any:
    """A model that finds no memory where `values` say, as long as a file is there, which that removes."""
    from support.scripted import Scripted, scripted_model

    class Scarce(Scripted):
        def _take(self, place: str) -> None:
            if place == values["place"] and os.path.exists(values["file"]):  # noqa: PTH110
                os.unlink(values["file"])  # noqa: PTH108
                if values["torch"] == "device":
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                if values["torch"] == "gpu":
                    raise RuntimeError("CUDA out of memory. Tried to allocate 9 bytes. GPU 0 is full")
                if values["torch"]:
                    raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
                raise MemoryError

        def read(self, state: Any, ids: list[int]) -> Any:
            self._take("read")
            return super().read(state, ids)

        def window(self, batch: Any) -> Any:
            self._take("window")
            return super().window(batch)

    return scripted_model("1 2 3", kind=Scarce).source.engine  # type: ignore[attr-defined]
