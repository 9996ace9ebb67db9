"""Many kernels compiled at once, by processes of their own: a process compiles one kernel at a time.

`python -m strata.ops.kernels.ahead ARCH LANES` is such a process: it reads a launch a line, and answers with an empty
line, or with what went wrong.
"""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from threading import Thread

from strata.errors import StrataError
from strata.ops.kernels.launches import Launch, Target, compiled

log = logging.getLogger("strata.ops")

FEW = 6
"""So many kernels are compiled where they are launched: a process takes as long to start as a few kernels."""

MOST = 16
"""Processes; each takes 0.5 GB of memory."""


def compile_all(
    launches: list[Launch], target: Target, processes: int, on_each: Callable[[], object] = lambda: None
) -> None:
    """Compile and keep on disk. Those that fail are left to their launch, which says why.

    Args:
        launches: what to compile.
        target: for what.
        processes: at most so many at once.
        on_each: called after each: whoever waits sees that it goes on.

    Raises:
        StrataError: a process does not start, or ends before its work.
    """
    waiting: SimpleQueue[Launch] = SimpleQueue()
    for launch in launches:
        waiting.put(launch)
    told: SimpleQueue[Exception | None] = SimpleQueue()
    count = max(1, min(processes, MOST, len(launches)))
    with ExitStack() as stack:
        workers = [stack.enter_context(_process(target)) for _ in range(count)]
        threads = [Thread(target=_feed, args=(worker, waiting, told), daemon=True) for worker in workers]
        for thread in threads:
            thread.start()
        try:
            for _ in launches:
                wrong = told.get()
                if wrong is not None:
                    raise StrataError(f"kernels cannot be compiled ahead: {wrong}") from wrong
                on_each()
        finally:
            for worker in workers:  # also when interrupted: nothing goes on behind our back
                worker.kill()
            for thread in threads:
                thread.join()


def _process(target: Target) -> "subprocess.Popen[bytes]":
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(  # noqa: S603  # our own program
        [sys.executable, "-P", "-m", "strata.ops.kernels.ahead", str(target.arch), str(target.lanes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,  # nothing is left to be flushed to a process that is gone
        env={**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        process_group=0,  # Ctrl-C in a terminal is for whoever started us
    )


def _feed(
    process: "subprocess.Popen[bytes]", waiting: "SimpleQueue[Launch]", told: "SimpleQueue[Exception | None]"
) -> None:
    """One launch after another until there are none."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        while True:
            launch = waiting.get_nowait()
            process.stdin.write(json.dumps([launch.module, launch.name, launch.form, launch.key]).encode() + b"\n")
            line = process.stdout.readline()
            if why := line.decode().strip():
                log.info("%s.%s is compiled where it is launched: %s", launch.module, launch.name, why)
            told.put(None if line else EOFError("a process that compiles has ended"))
    except Empty:
        pass
    except OSError as wrong:
        told.put(wrong)


def _launches() -> Iterator[Launch]:
    for line in sys.stdin.buffer:
        yield Launch(*json.loads(line))


def main(arch: int, lanes: int) -> None:
    """Compile what is asked for until there is no more."""
    for launch in _launches():
        try:
            compiled(launch, Target(arch, lanes))
            said = ""
        except Exception as wrong:  # noqa: BLE001  # whoever launches it meets the same and says so
            said = repr(wrong).replace("\n", " ")
        print(said, flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
