"""A profile of other texts, and no moves."""

from strata.lab.routing.policies.policy import Keys, Setting
from strata.lab.routing.policies.table import Table


class Static:
    """Stays as it starts."""

    def __init__(self, setting: Setting, start: Keys) -> None:
        """The experts of `start`, as many as fit, stay."""
        self._table = Table(setting, start)

    def window(self, keys: Keys) -> tuple[int, int]:
        """See `Policy`."""
        return self._table.hits(keys), 0
