"""Blocks of the file to planes by tables of bits: the planes that `strata.ops.planes` makes, for every type."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import FormatError
from strata.formats import by_name
from strata.ops.experts.slots import SlotLayout
from strata.ops.planes import LAYOUTS, layout
from strata.ops.tiers import bring, repack
from support.blocks import random_blocks
from support.launch import NATIVE

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.mark.parametrize("name", LAYOUTS)
def test_tables_make_planes_of_any_bytes(name):
    """Every bit of a block has its place: random bytes, which no quantiser would write, included."""
    blocks = torch.randint(
        0, 256, (256, by_name(name).bytes), dtype=torch.uint8, generator=torch.Generator().manual_seed(3)
    )
    for plane, one in zip(layout(name).split(blocks), repack.terms(name), strict=True):
        assert torch.equal(plane.reshape(256, -1), repack.apply(one, blocks))


def test_programs_take_whole_words_of_16_bytes():
    for name in LAYOUTS:
        found = repack.recipe(name)
        assert found.together & (found.together - 1) == 0
        assert found.together * found.block % 16 == 0
        assert found.together * found.block <= repack.WIDEST


@pytest.mark.parametrize(
    ("gate", "up", "down", "hidden", "inner"),
    [
        ("IQ3_XXS", "IQ3_XXS", "IQ4_NL", 256, 96),
        ("Q6_K", "IQ2_S", "Q5_1", 512, 64),
        ("IQ1_M", "Q4_K", "MXFP4", 256, 64),
        ("NVFP4", "IQ2_XS", "Q2_0", 256, 64),
    ],
)
def test_experts_are_brought_to_slots(gate, up, down, hidden, inner):
    """The bytes that `SlotLayout.fill` writes, and no others; experts lie anywhere."""
    rng = np.random.default_rng([*gate.encode()])
    kind = SlotLayout(gate, up, down, hidden, inner)
    shapes = ((gate, (inner, hidden)), (up, (inner, hidden)), (down, (hidden, inner)))
    matrices = [[torch.from_numpy(random_blocks(name, shape, rng)) for name, shape in shapes] for _ in range(4)]
    if NATIVE:
        matrices = [[x.pin_memory() for x in parts] for parts in matrices]
    addresses = np.array([[[x.data_ptr() for x in parts] for parts in matrices]], np.int64)
    base = torch.zeros(512, dtype=torch.uint8, pin_memory=NATIVE)
    (source,) = bring.sources([kind], addresses, base, DEVICE)
    slots = torch.full((5, kind.nbytes), 77, dtype=torch.uint8, device=DEVICE)
    expected = slots.clone()
    stage = torch.empty(3 * source.nbytes, dtype=torch.uint8, device=DEVICE)
    lists = torch.tensor([[3, 0, 1], [1, 4, 0], [2, 0, 0]], dtype=torch.int32, device=DEVICE)
    source.launch(slots, stage, lists[0], lists[1], lists[2], 3)  # the third is not counted
    for expert, slot in ((3, 1), (0, 4)):
        kind.fill(expected[slot], *(x.to(DEVICE) for x in matrices[expert]))
    assert torch.equal(slots, expected)


def test_memory_that_words_do_not_reach_is_refused():
    kind = SlotLayout("Q8_0", "Q8_0", "Q8_0", 64, 32)
    base = torch.zeros(64, dtype=torch.uint8)
    with pytest.raises(FormatError, match="multiples of 16 bytes"):
        bring.sources([kind], np.full((1, 2, 3), base.data_ptr() + 8, np.int64), base, torch.device("cpu"))
