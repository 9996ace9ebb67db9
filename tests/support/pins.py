"""A driver that pins memory, and events of a device that come when a test says so."""


class Runtime:
    """A driver that knows what is pinned."""

    def __init__(self, refuse_from=None):
        self.pinned, self.calls, self._refuse_from = {}, 0, refuse_from

    def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802  # the driver's name
        del flags
        self.calls += 1
        if self._refuse_from is not None and self.calls >= self._refuse_from:
            return 2
        assert all(address + nbytes <= at or at + size <= address for at, size in self.pinned.items()), "pinned twice"
        self.pinned[address] = nbytes
        return 0

    def cudaHostUnregister(self, address):  # noqa: N802
        del self.pinned[address]
        return 0


class Event:
    def __init__(self):
        self.over = False

    def query(self):
        return self.over
