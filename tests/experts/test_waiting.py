"""Items that wait for what others of their list write: in any order, whatever fails, nobody waits for ever."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.experts.errors import KernelError
from strata.experts.kernels.cached import compiled, task_function
from strata.experts.kernels.memory import peek, poke
from strata.experts.pool import Pool
from strata.experts.pool.atomics import add, load, store
from strata.experts.pool.region import AFTER, ITEM, LOST, work

OPEN, CLOCK, GROUPS = 0, 1, 2  # words of the task: what never has to be waited for, a clock, and three of each group
LEFT, READY, WHEN = range(3)


@pytest.fixture(scope="module")
def run():
    """A compiled caller."""

    def once(state, items, count):
        return work(state, items, count)

    return compiled(once, "int64(int64, int64, int64)")


@pytest.fixture(scope="module")
def codes():
    """Items of a group, of which the last one opens it; and some that never do.

    An item writes when it began, and its group's last one when the group was open. Arguments: item, group.
    """

    def open_(task, first, last):
        now, group = add(task + 8, 1), task + 16 + 24 * last
        poke(task + 4096 + 8 * first, now + 1)
        if add(group, -1) == 1:
            poke(group + 16, add(task + 8, 1) + 1)
            store(group + 8, 1)
        return 0

    def fail(task, first, last):  # noqa: ARG001
        return 7

    def leave(task, first, last):  # noqa: ARG001
        return lost if add(task + 8, 1) == 0 else 0

    lost = LOST
    return {f.__name__: task_function(f) for f in (open_, fail, leave)}


@pytest.fixture(scope="module")
def pools():
    made = {threads: Pool((None,) * threads) for threads in (1, 2, 3, 8)}
    yield made
    for pool in made.values():
        pool.close()


def listed(code, task, groups):
    """Items of groups that wait for earlier groups: (whose h, items) each."""
    items, at = np.zeros((sum(count for _, count in groups), ITEM // 8), np.int64), 0
    for number, (after, count) in enumerate(groups):
        word = 0 if after is None else task.ctypes.data + 8 * (GROUPS + 3 * after + READY)
        for _ in range(count):
            items[at] = code.address, task.ctypes.data, at, number, word
            at += 1
    assert AFTER == 32
    return items


@st.composite
def graphs(draw):
    """Each group may wait for any before it."""
    found = []
    for number in range(draw(st.integers(1, 12))):
        after = draw(st.none() | st.integers(0, number - 1)) if number else None
        found.append((after, draw(st.integers(1, 9))))
    return found


@settings(deadline=None, max_examples=150)
@given(graphs(), st.sampled_from([1, 2, 3, 8]))
def test_no_item_begins_before_what_it_waits_for(pools, run, codes, groups, threads):
    task = np.zeros(2048, np.int64)
    for number, (_, count) in enumerate(groups):
        task[GROUPS + 3 * number + LEFT] = count
    items = listed(codes["open_"], task, groups)
    pools[threads].run(run, items.ctypes.data, len(items))
    began = task[512 : 512 + len(items)]
    assert (began > 0).all()
    assert task[CLOCK] == len(items) + len(groups)
    for item, (_, _, _, number, _) in enumerate(items.tolist()):
        after = groups[number][0]
        if after is not None:
            assert began[item] > task[GROUPS + 3 * after + WHEN] > 0


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_an_error_reaches_the_caller_though_others_wait_for_its_word(pools, run, codes, threads):
    """They are not run, for what they would read is not there."""
    task = np.zeros(2048, np.int64)
    items = listed(codes["open_"], task, [(None, 1), (0, 20)])
    items[0, 0] = codes["fail"].address
    for _ in range(5):
        began = time.monotonic()
        with pytest.raises(KernelError, match="failed with code 7"):
            pools[threads].run(run, items.ctypes.data, len(items))
        assert time.monotonic() - began < 5
    assert task[CLOCK] == 0


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_a_thread_that_ends_leaves_nobody_who_waits_for_its_word(run, codes, threads):
    """All of the rest wait for whoever dies: the caller in some rounds, whom nothing ends, so that it is an error."""
    pool, ended = Pool((None,) * threads), 0
    try:
        for _ in range(30):
            task = np.zeros(2048, np.int64)
            task[GROUPS + LEFT] = 100  # nobody opens it
            items = listed(codes["open_"], task, [(None, 2), (0, 60)])
            items[:2, 0] = codes["leave"].address
            with pytest.raises(KernelError, match="ended in the middle"):
                pool.run(run, items.ctypes.data, len(items))
            ended += 1
            assert not (task[514:] > 0).any()
            task[:] = 0
            task[GROUPS + LEFT], task[GROUPS + 3 + LEFT] = 2, 60
            items = listed(codes["open_"], task, [(None, 2), (0, 60)])
            pool.run(run, items.ctypes.data, len(items))
            assert (task[512 : 512 + 62] > 0).all()
    finally:
        pool.close()
    assert ended == 30


def test_a_thread_that_waits_is_not_at_work(run):
    """Of those that are named as being in the middle of something, one is."""
    import threading

    gate = np.zeros(8, np.int64)

    def stall(task, first, last):  # noqa: ARG001
        store(task + 8, 1)
        while load(task) == 0:
            pass
        store(task + 16, 1)
        return 0

    def nothing(task, first, last):
        return peek(task) * 0 + first * 0 + last * 0

    stalls, rest = task_function(stall), task_function(nothing)
    pool = Pool((None,) * 4)
    items = np.zeros((20, ITEM // 8), np.int64)
    items[:, 0], items[:, 1], items[1:, 4] = rest.address, gate.ctypes.data, gate.ctypes.data + 16
    items[0, 0] = stalls.address
    caller = threading.Thread(target=pool.run, args=(run, items.ctypes.data, len(items)))
    try:
        caller.start()
        while not gate[1]:
            time.sleep(0.001)
        end = time.monotonic() + 10
        while len(pool.holding()[0]) > 1 and time.monotonic() < end:
            time.sleep(0.001)
        assert len(pool.holding()[0]) <= 1  # none if it is the caller
        assert caller.is_alive()
    finally:
        gate[0] = 1
        caller.join(30)
        pool.close()
    assert not caller.is_alive()
