"""Least frequently used: counts that never fade."""

import numpy as np

from strata.lab.routing.policies.policy import Keys, Setting
from strata.lab.routing.policies.table import Table


class Lfu:
    """Who was visited more often in all than somebody who is there takes that one's place."""

    def __init__(self, setting: Setting, start: Keys) -> None:
        """The experts of `start`, as many as fit, are there."""
        self._table = Table(setting, start)
        self._moves = setting.moves
        self._visits = np.zeros(setting.total)

    def window(self, keys: Keys) -> tuple[int, int]:
        """See `Policy`."""
        table, visits = self._table, self._visits
        visits[keys] += 1
        hits = table.hits(keys)
        missed = keys[~table.here[keys] & ~table.coming[keys]]
        into = missed[np.argsort(-visits[missed], kind="stable")][: self._moves]
        here = np.flatnonzero(table.here)
        out = here[np.argsort(visits[here], kind="stable")][: max(0, len(into) - table.room)]
        into = into[: table.room + len(out)]
        free = len(into) - len(out)
        better = visits[into[free:]] > visits[out]
        return hits, table.exchange(np.concatenate([into[:free], into[free:][better]]), out[better])
