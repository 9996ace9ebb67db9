"""The thread that serves: started, rung, asked how it goes, and brought back after a fault."""

import atexit
import contextlib
import ctypes
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from strata.errors import StrataError, TierError
from strata.experts import cpu
from strata.experts.compute.moe import Expert
from strata.experts.compute.steps import gate_up
from strata.experts.errors import KernelError
from strata.experts.misses import answer as a
from strata.experts.misses import mailbox as box
from strata.experts.misses.loop import ringer, serving_loop
from strata.experts.misses.mailbox import Mailbox
from strata.experts.pool import Pool

SPIN = 0.2
"""Seconds the loop looks for messages without a pause of its own, after the last one and after a ring."""

TICK = 0.002
"""Seconds it sleeps at a time behind that. A ring ends a sleep at once."""

_FUTEX = {"x86_64": 202, "aarch64": 98}
_PHASES = ("reading the message", "laying out rows", "computing", "waiting for the disk")
_STOPPED = 5.0  # seconds a loop has to end after it was asked to


class Disk(Protocol):
    """Whoever reads experts that are not in memory: `strata.memory.tier.Stock`, or another with its interface."""

    @property
    def nobody(self) -> int:
        """The address of whoever is not in memory."""
        ...

    def visit(
        self, layer: int, wanted: NDArray[np.int64], stop: Callable[[], bool]
    ) -> Generator[NDArray[np.int64], None, None]:
        """Bring experts into memory and their addresses into the table; each group stays until the next is asked for.

        Raises:
            StrataError: they cannot be read, or take too long, or `stop` says that nobody wants them.
        """
        ...


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a window was given up.

    Attributes:
        code: of `strata.experts.misses.mailbox`, or 0 if the device's patience ended.
        message: number of the message.
        layer: it was about, -1 if unknown.
        experts: that were asked for.
        phase: how far the host was.
        seconds: since the host began with it; 0 if it is not at it.
        busy: threads in the middle of an item.
        ended: threads that have ended.
        running: whether the loop runs.
        reason: the error that ended the loop, or nothing.
        disk: what became of experts that were to be read, or nothing.
    """

    code: int
    message: int
    layer: int
    experts: tuple[int, ...]
    phase: str
    seconds: float
    busy: tuple[str, ...]
    ended: tuple[str, ...]
    running: bool
    reason: str
    disk: str = ""

    def __str__(self) -> str:
        what = {
            box.FINE: "the host did not answer in time",
            box.LOST: "a worker thread ended in the middle of its work",
            box.BAD_MESSAGE: "the GPU's message makes no sense, so nothing was computed from it",
            box.FAILED_ITEM: "an item of work failed",
            box.CLOSED: "the host loop was closed while a window ran",
            box.ENDED: "the host loop ended",
            box.UNREAD: "experts could not be read from the disk",
        }.get(self.code, f"code {self.code}")
        shown = ", ".join(map(str, self.experts[:12])) + (" ..." if len(self.experts) > 12 else "")
        parts = [f"{what}: layer {self.layer}, experts {shown}" if self.experts else f"{what}: layer {self.layer}"]
        if not self.running:
            parts.append("the host loop is not running" + (f" ({self.reason})" if self.reason else ""))
        elif self.seconds:
            parts.append(f"it has been at {self.phase} for {self.seconds:.1f} s")
        elif self.code == box.FINE:
            parts.append("the loop runs and has answered since" if self.message else "the loop runs")
        if self.disk:
            parts.append(self.disk)
        if self.busy:
            parts.append(f"in the middle of an item: {', '.join(self.busy)}")
        if self.ended:
            parts.append(f"ended: {', '.join(self.ended)}")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class HostStats:
    """What a loop has done since it was made.

    Attributes:
        messages: answered.
        experts: computed.
        pairs: of row and expert.
        busy_s: seconds it was at it.
        nbytes: of weights read.
        sleeps: ticks slept.
    """

    messages: int
    experts: int
    pairs: int
    busy_s: float
    nbytes: int
    sleeps: int


class HostLoop:
    """Serves one mailbox from one thread and a pool of its own.

    Attributes:
        mailbox: how the memory is laid out.
        memory: shared with the device, ``uint8 [mailbox.nbytes]``.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        memory: NDArray[np.uint8],
        layers: Sequence[Expert],
        cpus: Sequence[int | None] = (None,),
        *,
        addresses: NDArray[np.int64] | None = None,
        disk: Disk | None = None,
        spin: float = SPIN,
    ) -> None:
        """Lay everything out; `start` begins.

        Args:
            mailbox: how the memory is laid out.
            memory: what is shared with the device; zeros at the start.
            layers: types and shapes of each layer's experts, and where they lie unless `addresses` says.
            cpus: processors of the threads, the loop's own first; None for one that may run anywhere.
            addresses: of each expert's gate, up and down, ``int64 [L, E, 3]``; may change while nothing is served.
            disk: reads those whose address is nobody's; None where all are in memory.
            spin: seconds it looks before it sleeps.

        Raises:
            KernelError: layers differ in shape, or the system has no futexes.
        """
        if platform.system() != "Linux" or platform.machine() not in _FUTEX:
            raise KernelError(
                f"experts outside the GPU's memory need Linux on x86-64 or ARM64, not {platform.platform()}"
            )
        shapes = {(m.gate.experts, m.gate.n, m.gate.k, m.up.n, m.up.k, m.down.n, m.down.k) for m in layers}
        if len(shapes) != 1 or next(iter(shapes))[2] != mailbox.hidden:
            raise KernelError(f"all layers' experts have one shape and width {mailbox.hidden}, not {sorted(shapes)}")
        self.mailbox, self.memory = mailbox, memory
        self._words = mailbox.words(memory)
        self._code = gate_up()
        self._desk = a.Desk(mailbox, memory, list(layers), self._code.address, addresses)
        library = ctypes.CDLL(None)
        for word, function in ((a.CLOCK, library.clock_gettime), (a.SYSCALL, library.syscall)):
            self._desk[word] = ctypes.cast(function, ctypes.c_void_p).value or 0
        self._desk[a.FUTEX] = _FUTEX[platform.machine()]
        self._disk, self._unread = disk, ""
        self._desk[a.NOBODY] = 0 if disk is None else disk.nobody
        self._desk[a.SPIN] = round(spin * 1e9)
        self._desk[a.TICK + 8] = round(TICK * 1e9)
        self._pool = Pool(tuple(cpus), spin=min(2000.0, spin * 1e6))
        self._place = cpus[0]
        self._run, self._ring = serving_loop(), ringer()
        self._thread: threading.Thread | None = None
        self._closing = False
        self._reason = ""
        self._resume = threading.Event()
        _LOOPS.add(self)

    def start(self) -> None:
        """Begin to serve."""
        if self._thread is None or not self._thread.is_alive():
            self._closing = False
            self._reason = ""
            self._desk[a.STOP] = 0
            self._resume.clear()
            self._thread = threading.Thread(target=self._serve, name="strata-misses", daemon=True)
            self._thread.start()

    def ring(self) -> None:
        """A window begins: messages may come."""
        self._ring(self._desk.address)

    @property
    def running(self) -> bool:
        """Whether somebody looks for messages."""
        return self._thread is not None and self._thread.is_alive() and not self._waiting

    @property
    def _waiting(self) -> bool:
        return bool(self._reason)

    @property
    def busy(self) -> bool:
        """Whether a message is being answered."""
        return self._desk[a.SERVING] != 0 and self.running

    def stats(self) -> HostStats:
        """What has been done."""
        d = self._desk
        counts = d[a.SERVED], d[a.SERVED_EXPERTS], d[a.SERVED_PAIRS]
        return HostStats(*counts, d[a.BUSY] / 1e9, d[a.SERVED_BYTES], d[a.IDLE_SLEEPS])

    def fault(self) -> Fault | None:
        """What went wrong since the last `recover`; None if nothing did."""
        abort, gave_up = int(self._words[2]), int(self._words[3])
        if not abort and not gave_up:
            return None
        header = self.mailbox.view(self.memory, box.HEADER, np.int32, 4)
        count = int(np.clip(header[box.COUNT], 0, self.mailbox.pairs))
        experts = self.mailbox.view(self.memory, self.mailbox.experts, np.int32, self.mailbox.pairs)[:count]
        seconds = 0.0
        if self._desk[a.SERVING]:
            seconds = max(1e-3, time.clock_gettime(time.CLOCK_MONOTONIC) - self._desk[a.SINCE] / 1e9)
        busy, ended = self._pool.holding()
        phase = _PHASES[self._desk[a.PHASE]] if self._desk[a.SERVING] else ""
        return Fault(
            abort, gave_up or int(self._words[0]), int(header[box.LAYER]), tuple(experts.tolist()), phase, seconds,
            tuple(busy), tuple(ended), self.running, self._reason, self._unread,
        )  # fmt: skip

    def recover(self, patience: float = 0.0) -> None:
        """Make ready for the next window after a fault. No window may be running.

        Args:
            patience: seconds to wait for an answer that is still being computed.

        Raises:
            TierError: the host is still at the message that nobody waits for any more, and would write into the next
                one's rows.
        """
        self._until(lambda: not self.busy, patience)
        if self._words[2] in {box.LOST, box.ENDED}:  # the loop is on its way out, and says so when it is there
            self._until(lambda: not self.running, _STOPPED)
        if self.busy:
            raise TierError(f"the host is still at an earlier window: {self.fault() or self._stuck()}")
        self._words[1] = self._words[0]
        self._words[2] = self._words[3] = 0
        self._desk[a.SERVING] = self._desk[a.STEP] = 0
        self._desk[a.STOP] = 0
        self._unread = ""
        if self._thread is not None and self._thread.is_alive():
            if self._waiting:
                self._reason = ""
                self._resume.set()
        else:
            self.start()

    @staticmethod
    def _until(condition: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not condition() and time.monotonic() < end:
            time.sleep(0.0005)

    def close(self) -> None:
        """End the thread and its pool. Whoever waits is released.

        Raises:
            TierError: it is in the middle of an answer and does not come back.
        """
        self._closing = True
        self._desk[a.STOP] = 1
        if self.busy:
            self._release(box.CLOSED)
        self._resume.set()
        self.ring()
        if self._thread is not None:
            self._thread.join(_STOPPED)
            if self._thread.is_alive():
                raise TierError(f"the host loop does not end: {self._stuck()}")
            self._thread = None
        self._pool.close()

    def _stuck(self) -> str:
        busy, _ = self._pool.holding()
        return (
            f"layer {self._desk[a.NOW_LAYER]}, {_PHASES[self._desk[a.PHASE]]}; at work: {', '.join(busy) or 'itself'}"
        )

    def _serve(self) -> None:
        try:
            if self._place is not None:
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(threading.get_native_id(), {self._place})
            cpu.check_subnormals()
            while True:
                try:
                    self._pool.run(self._run, self._desk.address)
                    while self._desk[a.SERVING] and not self._desk[a.STOP]:
                        self._fetch()
                        self._pool.run(self._run, self._desk.address)
                    reason: Any = "it was stopped"
                except KernelError as error:
                    reason = error
                if self._closing:
                    return
                if not self._words[2]:
                    self._release(box.ENDED)
                self._reason = str(reason)  # from here on it waits
                self._resume.wait()
                self._resume.clear()
        except BaseException as error:  # noqa: BLE001  # told by whoever asks
            self._reason = f"{type(error).__name__}: {error}"
            self._release(box.ENDED)

    def _fetch(self) -> None:
        """Some of a message's experts are not in memory: ask for all of them, and compute each when it is there.

        What is left to do is to end the answer, which whoever calls the loop again does.

        Raises:
            KernelError: a worker thread ended.
        """
        assert self._disk is not None, "an address is nobody's only where there is a disk"
        desk, m = self._desk, self.mailbox
        layer, count = desk[a.NOW_LAYER], desk[a.NOW_COUNT]
        experts = m.view(self.memory, m.experts, np.int32, m.pairs)[:count].astype(np.int64)
        place = {expert: i for i, expert in enumerate(experts.tolist())}
        picks = self._desk.array(a.PICKS, m.pairs)
        desk[a.FAILURE] = 0
        try:
            with contextlib.closing(self._disk.visit(layer, experts, lambda: bool(desk[a.STOP]))) as groups:
                for group in groups:
                    picks[: len(group)] = [place[expert] for expert in group.tolist()]
                    desk[a.PICKED], desk[a.STEP] = len(group), a.PART
                    self._pool.run(self._run, desk.address)
                    if not desk[a.SERVING] or desk[a.STOP]:
                        return  # an item failed, which whoever waits has been told
        except KernelError:
            raise
        except StrataError as error:
            self._unread = str(error)
            desk[a.FAILURE] = box.UNREAD
        desk[a.STEP] = a.END

    def _release(self, code: int) -> None:
        """Let nobody wait any longer."""
        if not self._words[2]:
            self._words[2] = code
        self._words[1] = box.BROKEN


_LOOPS: "weakref.WeakSet[HostLoop]" = weakref.WeakSet()


def close_all() -> None:
    """End all loops: what a process does before it ends, and before their pools are closed."""
    for loop in list(_LOOPS):
        with contextlib.suppress(TierError):
            loop.close()


atexit.register(close_all)  # behind the pools', so that it runs before it
