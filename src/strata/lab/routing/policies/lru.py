"""Least recently used: what was missed comes in, what was not visited for longest goes."""

import numpy as np

from strata.lab.routing.policies.policy import Keys, Setting
from strata.lab.routing.policies.table import Table


class Lru:
    """Every miss is worth a slot; where there are more of them than copies, a random choice."""

    def __init__(self, setting: Setting, start: Keys) -> None:
        """The experts of `start`, as many as fit, are there."""
        self._table = Table(setting, start)
        self._moves = setting.moves
        self._last = np.zeros(setting.total, np.int64)
        self._windows = 0
        self._draw = np.random.default_rng(0)

    def window(self, keys: Keys) -> tuple[int, int]:
        """See `Policy`."""
        table = self._table
        self._windows += 1
        self._last[keys] = self._windows
        hits = table.hits(keys)
        missed = keys[~table.here[keys] & ~table.coming[keys]]
        into = self._draw.permutation(missed)[: self._moves]
        here = np.flatnonzero(table.here)
        out = here[np.argsort(self._last[here], kind="stable")][: max(0, len(into) - table.room)]
        return hits, table.exchange(into[: table.room + len(out)], out)
