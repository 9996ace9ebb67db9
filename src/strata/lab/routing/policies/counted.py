"""Ours: counts that fade, every slot for any layer; and the same rule with slots of their own for each layer."""

import numpy as np

from strata.lab.routing.policies.policy import Keys, Setting
from strata.memory.slots import Move, Rule, SlotCache


class Counted:
    """The product's own cache, with copies that take a window."""

    def __init__(self, setting: Setting, start: Keys, rule: Rule | None = None, *, by_layer: bool = False) -> None:
        """The experts of `start`, as many as fit, are there.

        Args:
            setting: what there is to do with.
            start: experts, the most visited first.
            rule: the product's unless said.
            by_layer: whether each layer has slots of its own, as many as any other.
        """
        layers = setting.layers
        classes = list(range(layers)) if by_layer else [0] * layers
        each = [setting.slots // layers] * layers if by_layer else [setting.slots]
        self._cache = SlotCache([1] * len(each), classes, each, experts=setting.experts, rule=rule)
        self._experts = setting.experts
        self._moves = setting.moves
        self._flying: list[Move] = []
        for each_start in np.split(start, range(setting.slots, len(start), setting.slots)) if setting.slots else []:
            rows = np.stack(np.divmod(each_start, setting.experts), 1)
            for move in self._cache.fetch(rows, setting.slots):
                if move.out is None:
                    self._cache.begin(move)
                    self._cache.landed(move)

    def window(self, keys: Keys) -> tuple[int, int]:
        """See `Policy`."""
        hits = self._cache.seen(np.stack(np.divmod(keys, self._experts), 1))
        for move in self._flying:
            self._cache.landed(move)
        self._flying = self._cache.moves(self._moves)
        for move in self._flying:
            self._cache.begin(move)
        return hits, len(self._flying)
