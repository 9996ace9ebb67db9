"""The rule under which the published hit rates were taken: layer by layer, every four windows, in bursts.

Usage counts grow with every visit and are multiplied by 0.7 after each call; candidates were visited at least twice,
victims are the least used of the same layer, a newcomer needs 1.5 more than its victim, and the best 96 moves of all
layers are made: the defaults of that engine's adaptive tier.
"""

import numpy as np

from strata.lab.routing.policies.policy import Keys, Setting
from strata.lab.routing.policies.table import Table

EVERY, DECAY, LEAST, MARGIN, SWAPS = 4, 0.7, 2.0, 1.5, 96


class Tiered:
    """Exchanges within a layer."""

    def __init__(self, setting: Setting, start: Keys) -> None:
        """The experts of `start`, as many of each layer, are there."""
        layer = start // setting.experts
        each = setting.slots // setting.layers
        rank = np.zeros(len(start), np.int64)
        for number in range(setting.layers):
            mine = np.flatnonzero(layer == number)
            rank[mine] = np.arange(len(mine))
        self._setting = setting
        self._table = Table(setting, start[rank < each])
        self._usage = np.zeros(setting.total)
        self._windows = 0

    def window(self, keys: Keys) -> tuple[int, int]:
        """See `Policy`; its bursts are not held to the moves of the setting, but counted."""
        hits = self._table.hits(keys)
        self._usage[keys] += 1
        self._windows += 1
        if self._windows % EVERY:
            return hits, 0
        pairs: list[tuple[float, int, int]] = []
        usage = self._usage.reshape(self._setting.layers, -1)
        here = self._table.here.reshape(usage.shape)
        coming = self._table.coming.reshape(usage.shape)
        for layer in range(self._setting.layers):
            base = layer * self._setting.experts
            candidates = np.flatnonzero(~here[layer] & ~coming[layer] & (usage[layer] >= LEAST))
            candidates = candidates[np.argsort(-usage[layer, candidates], kind="stable")]
            victims = np.flatnonzero(here[layer])
            victims = victims[np.argsort(usage[layer, victims], kind="stable")]
            for new, old in zip(candidates.tolist(), victims.tolist(), strict=False):
                gain = float(usage[layer, new] - usage[layer, old])
                if gain < MARGIN:
                    break
                pairs.append((gain, base + new, base + old))
        pairs.sort(key=lambda pair: -pair[0])
        best = np.array([pair[1:] for pair in pairs[:SWAPS]], np.int64).reshape(-1, 2)
        self._usage *= DECAY
        return hits, self._table.exchange(best[:, 0], best[:, 1])
