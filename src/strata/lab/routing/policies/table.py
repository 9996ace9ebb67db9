"""A resident set with copies that take a window: what all policies but ours are built on."""

import numpy as np

from strata.lab.routing.policies.policy import Keys, Setting


class Table:
    """Which experts are there.

    Attributes:
        here: bool [L x E].
        room: slots that hold nothing and that nothing comes to.
    """

    def __init__(self, setting: Setting, start: Keys) -> None:
        """The experts of `start`, as many as fit, are there."""
        self.here = np.zeros(setting.total, np.bool_)
        self.coming = np.zeros(setting.total, np.bool_)
        self.here[start[: setting.slots]] = True
        self.room = setting.slots - int(self.here.sum())
        self._landing: Keys = np.empty(0, np.int64)

    def hits(self, keys: Keys) -> int:
        """How many of a window's experts are there; afterwards, what was under way has landed."""
        found = int(np.count_nonzero(self.here[keys]))
        self.here[self._landing] = True
        self.coming[self._landing] = False
        self._landing = np.empty(0, np.int64)
        return found

    def exchange(self, into: Keys, out: Keys) -> int:
        """Begin copies of `into`, in place of those of `out` and into empty slots; says how many."""
        self.here[out] = False
        self.room += len(out) - len(into)
        self.coming[into] = True
        self._landing = np.concatenate([self._landing, into])
        return len(into)
