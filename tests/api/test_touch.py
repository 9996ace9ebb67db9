"""A mapped file brought into memory: told how far, stopped at any moment."""

import threading

import numpy as np
import pytest

from strata.loading import touch as touching
from strata.loading.touch import touch


@pytest.fixture
def stored(tmp_path):
    data = np.random.default_rng(0).integers(0, 256, 1_000_003, dtype=np.uint8)
    (tmp_path / "f").write_bytes(data.tobytes())
    return np.memmap(tmp_path / "f", np.uint8, "r")[3:].reshape(1000, 1000)


@pytest.mark.parametrize("size", [1000, 4096, 999_999, 1 << 24])
def test_every_byte_is_told(stored, monkeypatch, size):
    monkeypatch.setattr(touching, "SLICE", size)
    told = []
    touch(stored, told.append)
    assert sum(told) == stored.nbytes
    assert max(told) <= size


def test_nothing_goes_on_after_an_interrupt(stored, monkeypatch):
    monkeypatch.setattr(touching, "SLICE", 1000)
    monkeypatch.setattr(touching, "THREADS", 2)
    real, calls, gate = touching._pages, [], threading.Event()

    def slow(part):
        calls.append(len(part))
        if len(calls) > 3:
            gate.wait(30)
        real(part)

    monkeypatch.setattr(touching, "_pages", slow)

    def stop(_):
        gate.set()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        touch(stored, stop)
    assert len(calls) < 1000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("strata-touch")]
