"""The worker pool as Python sees it: threads that are started, called and stopped."""

import atexit
import contextlib
import ctypes
import os
import platform
import threading
import weakref
from collections.abc import Callable, Sequence

import numpy as np

from strata.experts import cpu
from strata.experts.errors import KernelError
from strata.experts.kernels.activations import aligned
from strata.experts.pool import region

SPIN_MICROSECONDS = 50
"""How long an idle thread looks for work before it sleeps: longer than from one phase to the next, shorter than what
anybody notices in a laptop's battery."""

_SYSTEM_CALLS = {"x86_64": (202, 24), "aarch64": (98, 124)}  # futex, sched_yield
_PAUSE_SECONDS = 40e-9  # of one look and one pause; 140 cycles on Skylake and later, fewer elsewhere


class Pool:
    """Threads that take items of work from lists. One list at a time; callers wait for each other.

    The threads are started when they are first needed, pinned one to a processor, and live until `close`. The caller's
    own thread takes part and is not pinned.

    Attributes:
        threads: how many compute, the caller's included.
    """

    def __init__(self, cpus: Sequence[int | None], *, spin: float = SPIN_MICROSECONDS) -> None:
        """Describe a pool.

        Args:
            cpus: one processor per thread, None to leave a thread where the system puts it; the first is the caller's
                and only counted.
            spin: microseconds an idle thread looks for work before it sleeps.

        Raises:
            KernelError: no processors, or more than one on a system without futexes.
        """
        if not cpus:
            raise KernelError("a pool needs at least one thread, the caller's")
        if len(cpus) > 1 and (platform.system() != "Linux" or platform.machine() not in _SYSTEM_CALLS):
            raise KernelError(f"worker threads need Linux on x86-64 or ARM64; use one thread on {platform.platform()}")
        self._cpus = tuple(cpus)
        self._spins = max(1, round(spin * 1e-6 / _PAUSE_SECONDS))
        self._lock = threading.Lock()
        self._workers: list[threading.Thread] = []
        self._refused: list[BaseException] = []
        self._state = self._new_state()
        _POOLS.add(self)

    @property
    def threads(self) -> int:
        """How many compute, the caller's included."""
        return len(self._cpus)

    @property
    def cpus(self) -> tuple[int | None, ...]:
        """The processors of the threads; the first is the caller's and only counted."""
        return self._cpus

    def run(self, function: Callable[..., int], *arguments: int) -> None:
        """Call a compiled function with the pool's memory and further arguments.

        Raises:
            KernelError: an item failed, or a thread ended in the middle of one.
        """
        if len(self._cpus) == 1:
            failed = function(self._state.ctypes.data, *arguments)
        else:
            with self._lock:
                if not self._workers:
                    self._start()
                failed = function(self._state.ctypes.data, *arguments)
                if failed == region.LOST:
                    self._stop()
        if failed == region.LOST:
            raise KernelError("a worker thread ended in the middle of its work; the next call starts new ones")
        if failed:
            raise KernelError(f"an item of work failed with code {failed}")

    def holding(self) -> tuple[list[str], list[str]]:
        """Threads that are in the middle of an item now, not waiting for another's, and those that have ended."""
        state, busy, ended = self._state, [], []
        for i, thread in enumerate(self._workers):
            at = (region.THREADS + region.LINE * i) // 8
            if state[at] == region.TAKES:
                busy.append(thread.name)
            if state[at + region.ENDED // 8]:
                ended.append(thread.name)
        return busy, ended

    def close(self) -> None:
        """End the threads; a later call starts them again."""
        with self._lock:
            self._stop()

    def _new_state(self) -> np.ndarray:
        workers = len(self._cpus) - 1
        state = aligned(region.THREADS + region.LINE * workers).view(np.int64)
        state[:] = 0
        state[region.WORKERS // 8] = workers
        state[region.SPINS // 8] = self._spins
        if workers:
            library = ctypes.CDLL(None)
            state[region.SYSCALL // 8] = ctypes.cast(library.syscall, ctypes.c_void_p).value or 0
            state[region.FUTEX // 8], state[region.YIELD // 8] = _SYSTEM_CALLS[platform.machine()]
        return state

    def _start(self) -> None:
        self._state = state = self._new_state()
        loop = region.worker_loop()
        self._refused = []
        ready = threading.Barrier(len(self._cpus))
        threads = [
            threading.Thread(target=self._work, args=(loop, state, i, cpu, ready), name=f"strata-{i}", daemon=True)
            for i, cpu in enumerate(self._cpus[1:])
        ]
        begun: list[threading.Thread] = []
        try:
            for thread in threads:
                thread.start()
                begun.append(thread)
            ready.wait()
        except (RuntimeError, threading.BrokenBarrierError) as error:
            ready.abort()
            state[region.STOP // 8] = 1
            for thread in begun:
                thread.join()
            reason = self._refused[0] if self._refused else error
            raise KernelError(f"{len(threads)} worker threads could not be started: {reason}") from reason
        self._workers = threads

    def _work(self, loop: Callable[[int, int], int], state: np.ndarray, me: int, place: int | None,
              ready: threading.Barrier) -> None:  # fmt: skip
        ended = (region.THREADS + me * region.LINE + region.ENDED) // 8
        try:
            if place is not None:
                # The processor may have been taken away since it was chosen: then the thread runs where it may.
                with contextlib.suppress(OSError):
                    os.sched_setaffinity(threading.get_native_id(), {place})
            cpu.check_subnormals()
            ready.wait()
            loop(state.ctypes.data, me)
        except threading.BrokenBarrierError:
            pass
        except BaseException as error:  # noqa: BLE001  # told by whoever started the threads
            self._refused.append(error)
            ready.abort()
        finally:
            state[ended] = 1

    def _stop(self) -> None:
        if not self._workers:
            return
        address = self._state.ctypes.data
        self._state[region.STOP // 8] = 1
        region.ringer()(address)
        for thread in self._workers:
            thread.join()
        self._workers = []

    def _forked(self) -> None:
        """A child process has the pool's memory and none of its threads."""
        self._lock = threading.Lock()
        self._workers = []
        self._state = self._new_state()


_POOLS: "weakref.WeakSet[Pool]" = weakref.WeakSet()


def _forget_threads() -> None:
    for pool in _POOLS:
        pool._forked()  # noqa: SLF001


def close_all() -> None:
    """End the threads of all pools: what a process does before it ends."""
    for pool in list(_POOLS):
        pool.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)

atexit.register(close_all)
