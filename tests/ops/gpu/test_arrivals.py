"""Pieces that cross the link: what arrives is what was given, whatever parts it was in."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from strata.ops.gpu import arrivals
from strata.ops.gpu.arrivals import Arrivals, between
from support.launch import NATIVE

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5), st.data())
def test_rows_between_two_places_are_those_of_the_whole(lengths, data):
    whole = torch.arange(sum(lengths) * 2).view(-1, 2)
    parts = list(whole.split(lengths))
    first = data.draw(st.integers(0, len(whole)))
    last = data.draw(st.integers(first, len(whole)))
    found = between(parts, first, last)
    assert torch.equal(torch.cat([whole[:0], *found]), whole[first:last])
    assert all(len(part) for part in found)
    assert all(part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr() for part in found)


@pytest.fixture(params=["as it is", "through pieces"])
def came(request, monkeypatch):
    """Memory that the device reaches, and memory that it does not."""
    if not NATIVE and request.param == "through pieces":
        monkeypatch.setattr(Arrivals, "_reaches", lambda *_: False)
    found = Arrivals(DEVICE)
    found.like = (lambda one: one.pin_memory()) if NATIVE and request.param == "as it is" else (lambda one: one)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_pieces_arrive_in_order_and_stay_as_they_came(came, dtype):
    """Sizes go up and down, so that rooms grow and are used in part; all pieces are compared at the end."""
    most = 200_000 if NATIVE else 40
    dice = torch.Generator().manual_seed(1)
    for step in (1, 7):
        expected, pieces, given = [], [], []
        for rows in (3, most, 1, most // 2, most, 2, 5 * arrivals.ROOMS):
            whole = came.like(torch.randint(0, 100, (4, rows, 3, 2), generator=dice).to(dtype))
            expected.append(torch.cat([whole, whole.new_zeros((4, -rows % step, 3, 2))], dim=1))
            cuts = sorted(torch.randint(0, rows + 1, (2,), generator=dice).tolist())
            lengths = [cuts[0], cuts[1] - cuts[0], rows - cuts[1]]
            pieces.append([table.split(lengths) for table in whole])
            given.append(whole)
        found = list(came.stacked(iter(pieces), step))
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.device.type == DEVICE.type
            assert torch.equal(one.cpu(), other)


def test_tensors_that_lie_together_are_one_copy(came, monkeypatch):
    copies = []
    cross = Arrivals._cross

    def counted(self, there, tensors):
        with Copies(copies):
            cross(self, there, tensors)

    monkeypatch.setattr(Arrivals, "_cross", counted)
    whole = came.like(torch.rand(6, 5, 3))
    for tensors, count in (list(whole), 1), ([one.clone() for one in whole], 6), (list(whole[::2]), 3):
        copies.clear()
        there = torch.empty((len(tensors), 5, 3), device=DEVICE)
        came.stack(there, tensors)
        assert torch.equal(there.cpu(), torch.stack(tensors))
        if not NATIVE and copies:
            assert len(copies) == count


class Copies(TorchDispatchMode):
    """Counts copies."""

    def __init__(self, seen):
        super().__init__()
        self._seen = seen

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):
        if call is torch.ops.aten.copy_.default:
            self._seen.append(args[0].shape)
        return call(*args, **(kwargs or {}))
