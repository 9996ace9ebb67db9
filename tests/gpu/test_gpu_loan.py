"""A GPU's memory that slots lend to a long prompt: torch has it meanwhile, and windows are right all the time."""

import pytest
import torch

pytest.importorskip("triton")

from strata.experts.misses import Costs
from strata.memory.slots import SlotCache
from strata.ops.tiers.cuda import CHUNK
from support.tiered import tiered

pytestmark = pytest.mark.gpu

LAYERS, EXPERTS = 2, 8


def held() -> int:
    """Bytes that torch has. What is free on the device is others' business, too; `test_gpu_resize` looks at that."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def right(made) -> None:
    for got, expected, _ in made.window(1):
        assert got.tobytes() == expected.tobytes()
    made.tier.settled()


@pytest.mark.parametrize("learns", [False, True], ids=["by number", "by worth"])
def test_torch_has_what_slots_lend_and_slots_have_it_back(learns):
    """Experts of 3.4 MB, sixteen of them in slots; half of their memory goes to torch and comes back."""
    residents = [(layer, expert) for layer in range(LAYERS) for expert in range(EXPERTS)]
    made = tiered(residents, experts=EXPERTS, hidden=1024, inner=1024, costs=Costs(1.0, 1.0))
    tier = made.tier
    try:
        if learns:
            size = tier.layers[0].source.layout.nbytes
            cache = SlotCache([size], [0] * LAYERS, [len(residents)], experts=EXPERTS)
            tier.cache = made.cache = cache
            tier.fill()
        right(made)
        whole, slots = tier.room.nbytes, tier.room.slots
        before = held()
        tier.borrowing.take(3 * CHUNK)
        assert tier.borrowing.nbytes == whole - tier.room.nbytes >= 3 * CHUNK
        passed = torch.full((3 * CHUNK,), 5, dtype=torch.uint8, device="cuda")
        assert tier.room.slots < slots
        right(made)
        assert bool((passed == 5).all())
        del passed
        tier.borrowing.give_back()
        assert (tier.room.slots, tier.room.nbytes, tier.borrowing.nbytes) == (slots, whole, 0)
        assert held() == before, "torch has none of it any more"
        right(made)
        if learns:
            tier.fill()
            assert tier.cache.held == slots
            right(made)
    finally:
        made.close()
