"""Files and reading threads for what keeps and fetches bytes."""

import numpy as np
import pytest

from strata.memory.reads import Readers


@pytest.fixture
def readers():
    """Three threads, ended at the end."""
    found = Readers(3)
    yield found
    found.close()


@pytest.fixture
def some_file(tmp_path):
    """Makes a file of random bytes; returns its path and them."""

    def make(nbytes: int = 300_007, name: str = "some.bin"):
        data = np.random.default_rng(nbytes).integers(0, 256, nbytes, dtype=np.uint8)
        path = tmp_path / name
        path.write_bytes(data.tobytes())
        return path, data

    return make
