"""Pieces that cross the link: what arrives is what was given, whatever parts it was in."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
def test_pieces_arrive_in_order_and_stay_as_they_came(dtype):
    """Sizes go up and down, so that rooms grow and are used in part; all pieces are compared at the end."""
    most = 200_000 if NATIVE else 40
    dice = torch.Generator().manual_seed(1)
    came = Arrivals(DEVICE)
    for _ in range(2):
        expected, pieces = [], []
        for rows in (3, most, 1, most // 2, most, 2, 5 * arrivals.ROOMS):
            tables = [torch.randint(0, 100, (rows, 3, 2), generator=dice).to(dtype) for _ in range(4)]
            expected.append(torch.stack(tables))
            cuts = sorted(torch.randint(0, rows + 1, (2,), generator=dice).tolist())
            lengths = [cuts[0], cuts[1] - cuts[0], rows - cuts[1]]
            pieces.append([table.split(lengths) for table in tables])
        found = list(came.stacked(iter(pieces)))
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert one.device.type == DEVICE.type
            assert torch.equal(one.cpu(), other)
