"""Registering memory with a driver, in slices that may be refused one by one."""

import pytest
import torch

from strata.ops.gpu.pinned import Pinned, Refused


class Runtime:
    def __init__(self, refuse=(), fail=()):
        self.known, self.calls, self._refuse, self._fail = {}, 0, refuse, fail

    def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802  # the driver's name
        assert flags == 3
        self.calls += 1
        if self.calls in self._fail:
            raise KeyboardInterrupt
        if self.calls in self._refuse:
            return 2
        self.known[address] = nbytes
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        del self.known[address]
        return 0


def test_a_refused_slice_costs_only_itself():
    memory, runtime = torch.zeros(1 << 16, dtype=torch.uint8), Runtime(refuse=(2,))
    with Pinned(memory, [(0, 4096), (8192, 8192), (32768, 100)], runtime) as pinned:
        assert runtime.known == {memory.data_ptr(): 4096, memory.data_ptr() + 32768: 100}
        assert pinned.refused == [Refused(8192, 8192, 2)]
        assert pinned.nbytes == 4196
        assert pinned.holds(10, 4086)
        assert not pinned.holds(10, 4087)
        assert not pinned.holds(8192, 1)
        assert pinned.holds(32768, 100)
    assert not runtime.known
    pinned.close()


def test_interrupted_nothing_stays_registered():
    memory, runtime = torch.zeros(1 << 16, dtype=torch.uint8), Runtime(fail=(3,))
    with pytest.raises(KeyboardInterrupt):
        Pinned(memory, [(4096 * i, 4096) for i in range(5)], runtime)
    assert runtime.calls == 3
    assert not runtime.known
