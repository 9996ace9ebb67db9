"""The bound: a rule that knows the future, and copies as much as it likes (Belady's, windows instead of accesses)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strata.lab.routing.policies.policy import Keys, Setting
from strata.lab.routing.policies.table import Table

NEVER = np.iinfo(np.int64).max


def next_visits(windows: Sequence[Keys], total: int) -> list[NDArray[np.int64]]:
    """For each window and each of its experts: the window that visits it next."""
    after = np.full(total, NEVER)
    found = []
    for number in range(len(windows) - 1, -1, -1):
        keys = windows[number]
        found.append(after[keys])
        after[keys] = number
    return found[::-1]


class Oracle:
    """Keeps, of what is there and what was just visited, those that are visited again soonest."""

    def __init__(self, setting: Setting, start: Keys, windows: Sequence[Keys]) -> None:
        """The experts of `start`, as many as fit, are there; `windows` is what will come."""
        self._table = Table(setting, start)
        self._slots = setting.slots
        self._coming = iter(next_visits(windows, setting.total))
        self._next = np.full(setting.total, NEVER)
        for number in range(len(windows) - 1, -1, -1):
            self._next[windows[number]] = number

    def window(self, keys: Keys) -> tuple[int, int]:
        """See `Policy`."""
        table = self._table
        self._next[keys] = next(self._coming)
        hits = table.hits(keys)
        missed = keys[~table.here[keys] & ~table.coming[keys]]
        here = np.flatnonzero(table.here)
        everybody = np.concatenate([here, missed])
        best = everybody[np.argsort(self._next[everybody], kind="stable")][: len(here) + table.room]
        stays = np.zeros(len(table.here), np.bool_)
        stays[best] = True
        return hits, table.exchange(missed[stays[missed]], here[~stays[here]])
