"""Planes are what slices with strides say, for any number of numbers, wherever they lie."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.session import packing, planes
from strata.session.folder import Folder

GUARD = 64


@given(
    width=st.sampled_from(planes.WIDTHS),
    count=st.integers(0, 300) | st.sampled_from([4096, 5001]),
    shift=st.integers(0, 3),
    part=st.integers(0, 5000),
    seed=st.integers(0, 99),
)
@settings(max_examples=200, deadline=None)
def test_numbers_are_taken_apart_and_put_together(width, count, shift, part, seed) -> None:
    numbers = np.random.default_rng(seed).integers(0, 256, shift + count * width, np.uint8)[shift:]
    numbers.flags.writeable = False
    room = np.full(shift + len(numbers) + GUARD, 7, np.uint8)[shift:]
    planes.split(numbers, width, room[: len(numbers)])
    for i in range(width):
        assert (room[i * count :][:count] == numbers[i::width]).all()
    assert (room[len(numbers) :] == 7).all()

    found = np.full(shift + len(numbers) + GUARD, 7, np.uint8)[shift:]
    top = np.frombuffer(room[(width - 1) * count :][:count].tobytes(), np.uint8)
    for first, end in itertools.pairwise(sorted({0, count, min(part, count)})):
        planes.join(room[: (width - 1) * count], top[first:end], first, width, found[: len(numbers)])
        assert (found[end * width : len(numbers)] == 7).all()
    assert (found[: len(numbers)] == numbers).all()
    assert (found[len(numbers) :] == 7).all()


@pytest.mark.parametrize(
    ("lower", "top", "first", "width", "numbers"),
    [
        *((8, 8, 0, 2, 15), (8, 8, 0, 2, 17), (7, 8, 0, 2, 16), (8, 8, 0, 4, 32), (24, 8, 0, 4, 16)),
        *((16, 8, 0, 3, 24), (0, 8, 0, 1, 8), (8, 9, 0, 2, 16), (8, 8, 1, 2, 16), (8, 1, -1, 2, 16)),
    ],
)
def test_lengths_that_do_not_fit_are_refused(lower, top, first, width, numbers) -> None:
    with pytest.raises(ValueError, match=r"of planes and .* are not"):
        planes.join(np.zeros(lower, np.uint8), np.zeros(top, np.uint8), first, width, np.zeros(numbers, np.uint8))


@pytest.mark.parametrize(("numbers", "width", "room"), [(15, 2, 15), (16, 2, 15), (16, 4, 20), (24, 3, 24), (8, 1, 8)])
def test_room_that_does_not_fit_is_refused(numbers, width, room) -> None:
    with pytest.raises(ValueError, match="do not become"):
        planes.split(np.zeros(numbers, np.uint8), width, np.zeros(room, np.uint8))


def test_a_folder_has_them_compiled_before_anybody_waits_for_it(tmp_path, monkeypatch) -> None:
    planes._joiner.cache_clear()
    planes._splitter.cache_clear()
    Folder(tmp_path, "f" * 32, reserve=0).close()
    monkeypatch.setattr(planes, "compiled", lambda *_: pytest.fail("it was compiled when it was needed"))
    numbers, room = np.arange(16, dtype=np.uint8), np.empty(16, np.uint8)
    planes.split(numbers, 4, room)
    planes.join(room[:12], room[12:], 0, 4, numbers)


def test_without_zstd_nothing_is_compiled(monkeypatch) -> None:
    planes._joiner.cache_clear()
    monkeypatch.setattr(packing, "zstd", None)
    monkeypatch.setattr(planes, "compiled", lambda *_: pytest.fail("for nothing"))
    packing.prepare()
