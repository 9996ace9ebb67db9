"""The worker pool: everything is done once, nobody burns a processor for nothing, and no thread's end hangs anybody."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from strata.experts.errors import KernelError
from strata.experts.kernels.cached import compiled, task_function
from strata.experts.kernels.memory import peek, poke
from strata.experts.pool import Pool, region
from strata.experts.pool.atomics import add
from strata.experts.pool.region import ITEM, LOST, work

LISTS = 200


@pytest.fixture(scope="module")
def machinery():
    """A compiled caller, and items that count, fail, or end their thread.

    An item's task is the address of a counter of its own. A list is published many times, as phases are.
    """

    def count(task, first, last):
        add(task + 8 * first, last)
        return 0

    def fail(task, first, last):  # noqa: ARG001
        return 7 if first == 3 else 0

    def leave(task, first, last):  # noqa: ARG001
        if add(task, 1) == 0:  # whoever comes first; the others wait, so that it is not the caller alone
            return lost if last else 0
        return 0

    def repeat(state, items, count, times):
        failed = 0
        for _ in range(times):
            failed = work(state, items, count)
            if failed != 0:
                return failed
        return failed

    lost = LOST
    run = compiled(repeat, "int64(int64, int64, int64, int64)")
    return run, {f.__name__: task_function(f) for f in (count, fail, leave)}


def _run(pool, run, code, counters, count, times=1):
    items = np.zeros((count, ITEM // 8), np.int64)
    items[:, 0], items[:, 1], items[:, 2], items[:, 3] = code.address, counters.ctypes.data, np.arange(count), 1
    pool.run(run, items.ctypes.data, count, times)


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("count", [1, 2, 7, 500])
def test_every_item_of_every_list_is_run_once(threads, count, machinery):
    run, codes = machinery
    counters = np.zeros(count, np.int64)
    pool = Pool((None,) * threads)
    try:
        _run(pool, run, codes["count"], counters, count, LISTS)
        assert (counters == LISTS).all()
        time.sleep(0.01)  # long enough to fall asleep
        _run(pool, run, codes["count"], counters, count, LISTS)
        assert (counters == 2 * LISTS).all()
    finally:
        pool.close()


def test_an_idle_pool_sleeps(machinery):
    run, codes = machinery
    counters = np.zeros(8, np.int64)
    pool = Pool((None,) * 4)
    try:
        _run(pool, run, codes["count"], counters, 8, 1)
        time.sleep(0.05)
        spent = []
        for _ in range(5):
            before = time.process_time()
            time.sleep(0.2)
            spent.append(time.process_time() - before)
        # A tenth of one processor, of the three that could burn; other threads of the process may be at work, too.
        assert min(spent) < 0.02
    finally:
        pool.close()


def test_callers_wait_for_each_other(machinery):
    run, codes = machinery
    counters = np.zeros(64, np.int64)
    pool = Pool((None,) * 3)
    callers = [threading.Thread(target=_run, args=(pool, run, codes["count"], counters, 64, 50)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=60)
    pool.close()
    assert (counters == 200).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_inside_reaches_the_caller(threads, machinery):
    run, codes = machinery
    counters = np.zeros(8, np.int64)
    pool = Pool((None,) * threads)
    try:
        with pytest.raises(KernelError, match="failed with code 7"):
            _run(pool, run, codes["fail"], counters, 8)
        _run(pool, run, codes["count"], counters, 8, 1)
        assert (counters == 1).all()
    finally:
        pool.close()


def test_a_thread_that_ends_in_the_middle_of_an_item_hangs_nobody(machinery):
    """The caller is told, and the next call has all threads again."""
    run, codes = machinery
    pool = Pool((None,) * 3)
    try:
        for _ in range(20):  # the caller itself may come first: then there is no thread to be lost
            counters = np.zeros(300, np.int64)
            try:
                _run(pool, run, codes["leave"], counters, 300, 1)
            except KernelError as error:
                if "ended in the middle" in str(error):
                    break
        else:
            pytest.fail("no worker took the item in 20 rounds")
        counters = np.zeros(300, np.int64)
        _run(pool, run, codes["count"], counters, 300, 20)
        assert (counters == 20).all()
        assert sum(thread.is_alive() for thread in pool._workers) == 2
    finally:
        pool.close()


def test_threads_are_pinned_where_they_should_be(machinery):
    run, codes = machinery
    first = min(os.sched_getaffinity(0))
    counters = np.zeros(8, np.int64)
    pool = Pool((None, first, None))
    try:
        _run(pool, run, codes["count"], counters, 8, 1)
        threads = list(pool._workers)
        found = [os.sched_getaffinity(thread.native_id) for thread in threads]
        assert found == [{first}, os.sched_getaffinity(0)]
        assert all(thread.is_alive() for thread in threads)
    finally:
        pool.close()
    assert not any(thread.is_alive() for thread in threads)


def test_a_processor_that_is_gone_leaves_the_thread_where_it_may_run(machinery):
    run, codes = machinery
    counters = np.zeros(8, np.int64)
    pool = Pool((None, 4000))
    try:
        _run(pool, run, codes["count"], counters, 8, 5)
    finally:
        pool.close()
    assert (counters == 5).all()


def test_threads_that_cannot_be_started_are_an_error(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't start new thread")

    pool = Pool((None,) * 3)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(KernelError, match="2 worker threads could not be started: can't start new thread"):
        pool.run(lambda *_: 0)


def test_a_worker_refuses_to_flush_subnormals(monkeypatch):
    def flushing():
        raise KernelError("this thread flushes subnormal numbers")

    monkeypatch.setattr("strata.experts.cpu.check_subnormals", flushing)
    pool = Pool((None,) * 3)
    with pytest.raises(KernelError, match="could not be started: this thread flushes"):
        pool.run(lambda *_: 0)


def test_a_pool_needs_a_thread():
    with pytest.raises(KernelError, match="at least one thread"):
        Pool(())


FORKED = """
import os, sys
import numpy as np
from strata.experts.compute import Stored, product
from strata.experts.pool import Pool
from strata.formats import by_name
pool, rng = Pool((None, None)), np.random.default_rng(0)
raw = rng.integers(0, 100, (4000, 68), dtype=np.uint8)
x = rng.standard_normal((1, 64)).astype(np.float32)
first = product(pool, Stored(by_name("Q8_0"), raw), x).tobytes()
child = os.fork()
if not child:
    os._exit(product(pool, Stored(by_name("Q8_0"), raw), x).tobytes() != first)
code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(code, product(pool, Stored(by_name("Q8_0"), raw), x).tobytes() == first)
"""


def test_a_forked_process_starts_its_own_threads_and_a_process_ends_with_its_pool():
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", FORKED]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "0 True\n"), done.stderr


def test_words_of_memory_do_not_overlap():
    words = [
        *(region.CLAIM, region.DONE, region.FAILED, region.SLEEPERS, region.BELL, region.STOP),
        *(region.ITEMS, region.WORKERS, region.SYSCALL, region.FUTEX, region.YIELD, region.SPINS),
    ]
    assert len(set(words)) == len(words)
    assert max(words) + 8 <= region.THREADS
    memory = np.arange(4, dtype=np.int64)

    def swap(task, first, last):
        found = peek(task + 8 * first)
        poke(task + 8 * first, last)
        return found

    code = task_function(swap)
    assert code.ctypes(memory.ctypes.data, 2, 9) == 2
    assert memory.tolist() == [0, 1, 9, 3]
