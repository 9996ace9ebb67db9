"""Rows as a device stores them become what the CPU's kernels read, byte for byte."""

import numpy as np
import pytest

from strata.experts.kernels import activations, order
from strata.experts.kernels.activations import aligned
from strata.experts.kernels.record import GROUP, KEEP_AT, RECORD
from strata.experts.misses import rows

ORDERS = ("WORDS", "PLANES", "QUADS", "NIBBLES", "HALF_NIBBLES")


def _any_order(rng):
    """Lanes 2b and 2b + 1 of every register hold block b, whose weights lie anyhow there."""
    found = np.empty((4, 16, 4), np.uint8)
    for block in range(8):
        found[:, 2 * block : 2 * block + 2] = 32 * block + rng.permutation(32).reshape(4, 2, 4)
    return found


@pytest.mark.parametrize("offset", [0, 8, 32])
@pytest.mark.parametrize("name", [*ORDERS, "any"])
@pytest.mark.parametrize("width", [32, 96, 256, 288, 640, 2560])
def test_records_are_those_of_rows_in_their_order(width, name, offset):
    """Short last groups among them; behind the row lie other numbers, and in the records what was there before."""
    rng, blocks = np.random.default_rng([width, offset]), width // 32
    # No decoder takes weights in just any order, but one might, as long as lanes stay with their blocks.
    taken = getattr(order, name) if name in ORDERS else _any_order(rng)
    q = rng.integers(-127, 128, (1, width)).astype(np.int8)
    q[:, :32], q[:, -32:] = 127, -127  # as far as sums go
    s = rng.uniform(1e-3, 1, (1, blocks)).astype(np.float32)
    wanted = activations.arrange(q, s, taken, offset).view(np.uint8).reshape(-1)

    given = aligned(width + GROUP)
    given[:] = 77
    given[:width] = q.reshape(blocks, 2, 16).transpose(1, 0, 2).reshape(-1)
    places, records, room = rows.table(taken, blocks), aligned(-(-width // GROUP) * RECORD), aligned(width + GROUP)
    records[:], room[:] = 99, 55
    addresses = given.ctypes.data, s.ctypes.data, width, places.ctypes.data, offset, room.ctypes.data
    rows.arrange(*addresses, records.ctypes.data)
    assert (room[width:] == 55).all()
    read = slice(KEEP_AT + 32)  # what is behind, nobody reads
    assert np.array_equal(records.view(np.uint8).reshape(-1, RECORD)[:, read], wanted.reshape(-1, RECORD)[:, read])
