"""Blocks of the file to planes by sums of bits: the planes that `strata.ops.planes` makes, for every type."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("triton")

from strata.errors import FormatError
from strata.formats import by_name
from strata.ops.experts.slots import SlotLayout
from strata.ops.planes import LAYOUTS, layout
from strata.ops.tiers import bring, kernels, repack
from support.blocks import random_blocks
from support.launch import NATIVE

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.mark.parametrize("name", LAYOUTS)
def test_recipes_make_planes_of_any_bytes(name):
    """Every bit of a block has its place: random bytes, which no quantiser would write, included."""
    blocks = torch.randint(
        0, 256, (256, by_name(name).bytes), dtype=torch.uint8, generator=torch.Generator().manual_seed(3)
    )
    for plane, one in zip(layout(name).split(blocks), repack.recipes(name), strict=True):
        assert torch.equal(plane.reshape(256, -1), repack.apply(one, blocks))


def test_programs_take_whole_words_of_16_bytes():
    for name in LAYOUTS:
        found = repack.together(name)
        assert found & (found - 1) == 0
        assert found * by_name(name).bytes % 16 == 0
        assert found * by_name(name).bytes <= repack.WIDEST


def test_released_types_are_few_loads():
    """What makes a piece quick: words of a plane are formed alike, and from one word of the block."""
    index, signs, scales, d = repack.recipes("IQ3_XXS")
    assert [len(one.strands) for one in (index, signs, scales, d)] == [1, 1, 1, 1]
    (word,) = signs.strands[0].windows
    assert (word.offset, word.steps, word.chunk, word.chunks, len(word.terms)) == (66, (4,), 2, 2, 22)
    codes, _ = repack.recipes("IQ4_NL")
    (word,) = codes.strands[0].windows
    assert (word.offset, word.steps, word.chunk, word.chunks, len(word.terms)) == (2, (4,), 2, 2, 7)
    for name in LAYOUTS:  # more than a load for every two bytes and 16 strands would be another design
        planes = repack.recipes(name)
        strands = [one for plane in planes for one in plane.strands]
        loads = sum(one.count * window.chunks for one in strands for window in one.windows)
        assert loads <= 2 * by_name(name).bytes
        assert len(strands) <= 16


Bits = list[list[tuple[int, ...]]]
"""Of every plane, for each of its bits: which bits of the block are added up; -1 stands for a one."""


@st.composite
def sums(draw: st.DrawFn) -> tuple[int, Bits]:
    """Bytes of a block, and planes of it: bits anywhere, or a few patterns that move with the plane's bytes."""
    size = draw(st.integers(1, 24))
    planes = []
    for _ in range(draw(st.integers(1, 2))):
        width = 1 << draw(st.integers(0, 3))
        if draw(st.booleans()):
            bit = st.lists(st.integers(-1, 8 * size - 1), max_size=3).map(tuple)
            planes.append(draw(st.lists(bit, min_size=8 * width, max_size=8 * width)))
            continue
        apart = [draw(st.integers(-3, 5)) for _ in range(width.bit_length() - 1)]
        patterns = [draw(st.lists(st.integers(0, 8 * size - 1), max_size=2)) for _ in range(8)]
        shift = [sum(step for i, step in enumerate(apart) if byte >> i & 1) for byte in range(width)]
        planes.append(
            [tuple((bit + 8 * more) % (8 * size) for bit in pattern) for more in shift for pattern in patterns]
        )
    return size, planes


def split_by(planes: Bits) -> Callable[[torch.Tensor], list[torch.Tensor]]:
    """What packs like that, bit by bit."""

    def split(blocks: torch.Tensor) -> list[torch.Tensor]:
        bits = (blocks[:, :, None] >> torch.arange(8, dtype=torch.uint8) & 1).flatten(1)
        bits = torch.cat([bits, torch.ones((len(bits), 1), dtype=torch.uint8)], dim=1)  # number -1
        found = []
        for plane in planes:
            one = torch.stack([bits[:, list(sources)].sum(1) & 1 for sources in plane], dim=1).to(torch.uint8)
            found.append((one.view(len(blocks), -1, 8) << torch.arange(8, dtype=torch.uint8)).sum(2).to(torch.uint8))
        return found

    return split


@given(drawn=sums(), blocks=st.integers(1, 9), seed=st.integers(0, 9))
@settings(max_examples=10, deadline=None)
def test_any_sums_of_bits_are_brought(drawn, blocks, seed):
    """The kernel against the packing itself, with types that nobody has: odd blocks, the last piece not full."""
    size, planes = drawn
    split = split_by(planes)
    recipes = repack.recipes_of(split, size, "made up")
    blocks *= 16  # a matrix is a multiple of 16 bytes
    raw = torch.randint(0, 256, (2, 3, blocks, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))
    starts, at = [], 0
    for one in recipes:
        starts.append(at)
        at += -(-one.bytes * blocks // 16) * 16
    code, together = repack.code(recipes, starts), 32
    each = -(-blocks // together)
    raw = raw.to(DEVICE)
    places = torch.arange(6, device=DEVICE).view(2, 3) * (blocks * size // 16)
    slots = torch.full((2, 3 * at), 77, dtype=torch.uint8, device=DEVICE)
    expected = slots.clone()
    for slot, expert in ((1, 0), (0, 1)):
        for k in range(3):
            for one, start, plane in zip(recipes, starts, split(raw[expert, k].cpu()), strict=True):
                first = k * at + start
                expected[slot, first : first + one.bytes * blocks] = plane.flatten().to(DEVICE)
    lists = torch.tensor([[0, 1], [1, 0], [2, 0]], dtype=torch.int32, device=DEVICE)
    kernels.bring[(3,)](
        raw, places, torch.empty_like(raw), 3 * blocks * size, slots, slots.stride(0), at, 2 * at, *lists,
        GATE_PIECES=each, UP_PIECES=each, DOWN_PIECES=each, BLOCKS=(blocks,) * 3, BLOCK=(size,) * 3,
        TOGETHER=(together,) * 3, ROOM=(1 << (together * size // 4 - 1).bit_length(),) * 3, GATE=code, UP=code,
        DOWN=code, PDL=False, num_warps=bring.WARPS,
    )  # fmt: skip
    assert torch.equal(slots, expected)


def test_what_is_no_sum_of_bits_is_refused():
    with pytest.raises(FormatError, match="sums of bits"):
        repack.recipes_of(lambda x: [(x[:, :1] & x[:, 1:2])], 2, "and")
    with pytest.raises(FormatError, match="no power of two"):
        repack.recipes_of(lambda x: [x], 3, "three")


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
    """The bytes that `SlotLayout.fill` writes, and no others; experts lie anywhere; gates and ups, and then downs."""
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
    whole, empty = slots.clone(), slots.clone()
    source.launch(whole, stage, lists[0], lists[1], lists[2], 3)  # the third is not counted
    for expert, slot in ((3, 1), (0, 4)):
        kind.fill(expected[slot], *(x.to(DEVICE) for x in matrices[expert]))
    assert torch.equal(whole, expected)
    at = kind.down_at
    source.launch(slots, stage, lists[0], lists[1], lists[2], 3, parts=bring.GATE_UP)
    assert torch.equal(slots, torch.cat([expected[:, :at], empty[:, at:]], 1))
    source.launch(slots, stage, lists[0], lists[1], lists[2], 3, parts=bring.DOWN)
    assert torch.equal(slots, expected)


def test_memory_that_words_do_not_reach_is_refused():
    kind = SlotLayout("Q8_0", "Q8_0", "Q8_0", 64, 32)
    base = torch.zeros(64, dtype=torch.uint8)
    with pytest.raises(FormatError, match="multiples of 16 bytes"):
        bring.sources([kind], np.full((1, 2, 3), base.data_ptr() + 8, np.int64), base, torch.device("cpu"))
