"""Rows as a device stores them become what the CPU's kernels read, byte for byte."""

import numpy as np
import pytest

from strata.experts.kernels import activations, order
from strata.experts.kernels.activations import aligned
from strata.experts.kernels.record import GROUP, KEEP_AT, RECORD
from strata.experts.misses import rows

ORDERS = ("WORDS", "PLANES", "QUADS", "NIBBLES", "HALF_NIBBLES")


@pytest.mark.parametrize("offset", [0, 8, 32])
@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("width", [32, 96, 256, 288, 640, 2560])
def test_records_are_those_of_rows_in_their_order(width, name, offset):
    """Short last groups among them; behind the row lie other numbers, and in the records what was there before."""
    rng, blocks = np.random.default_rng([width, offset]), width // 32
    q = rng.integers(-127, 128, (1, width)).astype(np.int8)
    s = rng.uniform(1e-3, 1, (1, blocks)).astype(np.float32)
    wanted = activations.arrange(q, s, getattr(order, name), offset).view(np.uint8).reshape(-1)

    given = aligned(width + GROUP)
    given[:] = 77
    given[:width] = q.reshape(blocks, 2, 16).transpose(1, 0, 2).reshape(-1)
    places, records = aligned(rows.SOURCES_BYTES), aligned(-(-width // GROUP) * RECORD)
    records[:] = 99
    rows.sources(getattr(order, name).ctypes.data, blocks, places.ctypes.data)
    rows.arrange(given.ctypes.data, s.ctypes.data, width, places.ctypes.data, offset, records.ctypes.data)
    read = slice(KEEP_AT + 32)  # what is behind, nobody reads
    assert np.array_equal(records.view(np.uint8).reshape(-1, RECORD)[:, read], wanted.reshape(-1, RECORD)[:, read])
