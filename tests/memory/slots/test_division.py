"""Dividing memory between classes: never too much, nothing left that would hold one more, by counts where they are."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.memory.slots import SlotError, divide

E = 6
sizes = st.lists(st.integers(1, 50), min_size=1, max_size=4)


@given(sizes, st.integers(0, 3000), st.randoms(), st.booleans())
def test_the_room_is_used_and_never_exceeded(sizes, room, random_, counted) -> None:
    classes = [random_.randrange(len(sizes)) for _ in range(4)] + list(range(len(sizes)))
    counts = np.array([[random_.random() for _ in range(E)] for _ in classes]) if counted else None
    slots = divide(room, sizes, classes, E, counts)
    used = sum(s * n for s, n in zip(sizes, slots, strict=True))
    assert used <= room
    most = [E * classes.count(c) for c in range(len(sizes))]
    assert all(n <= m for n, m in zip(slots, most, strict=True))
    for size, n, m in zip(sizes, slots, most, strict=True):
        assert n == m or used + size > room
    if not counted:
        shares = [n / m for n, m in zip(slots, most, strict=True)]
        assert max(shares) - min(shares) <= 1 / min(most) + max(sizes) * len(sizes) / sum(
            s * m for s, m in zip(sizes, most, strict=True)
        ) + max(sizes) / min(s * m for s, m in zip(sizes, most, strict=True))


def test_the_most_visited_come_first_whatever_their_size() -> None:
    counts = np.zeros((2, E))
    counts[0, :2], counts[1, :3] = 5, 9
    assert divide(3 * 20 + 2 * 10, [10, 20], [0, 1], E, counts) == (2, 3)
    assert divide(3 * 20, [10, 20], [0, 1], E, counts) == (0, 3)
    assert divide(59, [10, 20], [0, 1], E, counts) == (1, 2)


def test_numbers_that_do_not_fit() -> None:
    with pytest.raises(SlotError):
        divide(-1, [10], [0])
    with pytest.raises(SlotError):
        divide(100, [10], [0], E, np.zeros((2, E)))
