"""Prompts of a model in tiers: what has no slot comes through the ring, from RAM, as the planes it has in a slot."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from support.tiered import DEVICE, tiered
from support.tiers import Told


def test_missing_experts_come_through_the_ring():
    made = tiered([(0, 1), (1, 4), (1, 5)], layers=2, experts=20)
    try:
        streaming = made.tier.streaming(made.layers)
        assert made.tier.streaming(made.layers) is streaming
        assert [streaming.number(moe) for moe in made.layers] == [0, 1]
        for turn in range(2):
            streaming.begin(4096)
            there = made.cache.slot_of
            for layer, moe in enumerate(made.moes):
                assert streaming.lacks(layer)
                came = set()
                for slots in streaming.groups(layer):
                    where = slots.slot_of.cpu().numpy()
                    for expert in np.flatnonzero(where >= 0).tolist():
                        expected = torch.zeros(slots.layout.nbytes, dtype=torch.uint8, device=DEVICE)
                        raws = (torch.from_numpy(m.raw[expert].copy()).to(DEVICE) for m in (moe.gate, moe.up, moe.down))
                        slots.layout.fill(expected, *raws)
                        assert torch.equal(slots.data[where[expert]], expected)
                        came.add(expert)
                assert came == set(np.flatnonzero(there[layer] < 0).tolist()), turn
            made.cache.next = [Told(0, 7, 0)]
            made.tier._move(made.cache.moves(1))  # between passes: another one is here now
    finally:
        made.close()
