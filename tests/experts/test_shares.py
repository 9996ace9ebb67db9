"""Lists of items: nothing is left out, none is longer than its room, and no thread has much to wait for at the end."""

import heapq

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strata.experts.compute.shares import LEAST, largest, most_items, share, smallest
from strata.experts.kernels.task import ROWS_TOGETHER
from strata.experts.pool.region import ITEM, MOST_ITEMS

CODE, TASK, AFTER = 77, 1000, 99


def cut(outputs, count, threads, least, most):
    """What is written of so many matrices, ``int64 [items, 4]``."""
    room = most_items(outputs, count, threads, most)
    items, written = np.full((room + 1, ITEM // 8), -1, np.int64), 0
    for i in range(count):
        to, behind = items.ctypes.data + ITEM * written, (count - 1 - i) * outputs
        written += share(to, CODE, TASK + i, outputs, behind, threads, least, most, AFTER)
        assert written <= room
    assert (items[written:] == -1).all()
    return items[:written]


@settings(deadline=None)  # the first call compiles
@given(
    st.integers(1, 3000),
    st.integers(1, 60),
    st.integers(1, 64),
    st.integers(1, 400) | st.integers(1, 60_000),
    st.sampled_from([1, 8, 9, 64]),
)
@example(640, 1, 16, 1960, 4)
@example(1, 1, 64, 1, 9)
@example(2560, 60, 1, 360, 9)
def test_every_output_is_in_one_item(outputs, count, threads, row_bytes, rows):
    least, most = smallest(row_bytes), largest(row_bytes, outputs, rows)
    assert least % 8 == 0
    assert LEAST / row_bytes - 1 < least < LEAST / row_bytes + 8
    assert most == outputs or (most % 8 == 0 and rows > ROWS_TOGETHER)
    items = cut(outputs, count, threads, least, most)
    assert (items[:, 0] == CODE).all()
    assert (items[:, 4] == AFTER).all()
    for i in range(count):
        mine = items[items[:, 1] == TASK + i, 2:]
        assert mine[0, 0] == 0
        assert mine[-1, 1] == outputs
        assert np.array_equal(mine[1:, 0], mine[:-1, 1])
        assert (mine[:, 0] % 8 == 0).all()
        assert (mine[:, 1] - mine[:, 0] <= max(most, 8)).all()
    assert (np.diff(items[:, 1]) >= 0).all()
    assert (items[:, 3] - items[:, 2] >= min(outputs, least, most) / 2 - 8).all()  # no crumbs


def lasts(sizes, threads, each, late):
    """When the last of some threads is done that take items in turn, the caller first, the others so much later."""
    free = [0.0, *np.linspace(late / 2, late, threads - 1)]
    heapq.heapify(free)
    for size in sizes:
        heapq.heappush(free, heapq.heappop(free) + each + size)
    return max(free)


@pytest.mark.parametrize("threads", [2, 4, 8, 15, 16, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 10, 80])
@pytest.mark.parametrize(("outputs", "row_bytes"), [(640, 1960), (2560, 360), (128, 220), (248320, 1960)])
def test_no_thread_waits_long_for_the_last(outputs, row_bytes, count, threads):
    """Against bytes that are shared out evenly, with what it takes to claim an item, 2 KB, and late beginnings."""
    items = cut(outputs, count, threads, smallest(row_bytes), outputs)
    assert len(items) < MOST_ITEMS
    sizes, late = row_bytes * (items[:, 3] - items[:, 2]), 4096
    took = lasts(sizes, threads, 2048, late)
    fair = (sizes.sum() + 2048 * len(items) + 0.75 * late * (threads - 1)) / threads
    last = max(LEAST, 8 * row_bytes)
    assert took <= fair + last + 2048
    # A thread claims few: some of what is large, and what is left is halved every three quarters of a turn.
    assert len(items) <= count + threads * (4 + 1.5 * np.log(max(2, sizes.sum() / threads / last)))


def test_the_released_shapes_are_cut_as_the_page_says():
    def sizes(outputs, row_bytes, count):
        items = cut(outputs, count, 16, smallest(row_bytes), outputs)
        found = items[:, 3] - items[:, 2]
        return len(found), found.max(), found.min()

    assert sizes(640, 1960, 1) == (48, 32, 8)
    assert sizes(640, 1960, 4) == (81, 112, 8)
    assert sizes(2560, 360, 1) == (57, 112, 24)  # 24 are 8.6 KB
