"""Grouped experts on a GPU against the judge, byte for byte; from VRAM and from pinned RAM; in graphs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from strata.experts import judge
from strata.ops.experts import triton as experts
from strata.ops.experts.swiglu import exp, swiglu
from strata.ops.matvec import triton as matvec
from strata.ops.variants import Tile
from support.corners import activations
from support.grouped import choices, layer

pytestmark = pytest.mark.gpu

KINDS = [
    ("IQ3_XXS", "IQ3_XXS", "IQ4_NL"),
    ("Q8_0", "Q8_0", "Q8_0"),
    ("Q4_K", "Q4_K", "Q5_1"),
    ("IQ2_XS", "IQ3_S", "Q2_0"),
    ("NVFP4", "NVFP4", "NVFP4"),
    ("IQ1_M", "IQ2_S", "MXFP4"),
]


def _expected(made, x, ids, weights, shared):
    both = np.concatenate([weights, shared[:, None]], axis=1)
    return judge.combine(made.rows(x, ids, shared=True), both)


def _device(*arrays):
    return [torch.from_numpy(np.ascontiguousarray(array)).cuda() for array in arrays]


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_bytes_of_the_judge(kinds):
    """One to eight rows, ten or fewer experts each, one expert in common; from VRAM and from pinned RAM."""
    rng = np.random.default_rng([*"".join(kinds).encode()])
    made = layer(kinds, 512, 640, 12, rng, "cuda")
    pinned = replace(made.slots, data=made.slots.data.cpu().pin_memory())
    for rows in range(1, 9):
        topk = 10 if rows < 4 else 5
        ids, x = choices(rows, topk, 12, rng), activations(512, rng)[8 - rows :]
        weights, shared = rng.random((rows, topk), np.float32), rng.random(rows, np.float32)
        expected = _expected(made, x, ids, weights, shared)
        x_, ids_, weights_, shared_ = _device(x, ids, weights, shared)
        for slots in (made.slots, pinned):
            found = experts.experts(slots, matvec.quantise(x_), ids_, weights_, shared_)
            np.testing.assert_array_equal(found.cpu().numpy().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(
    "tile", [Tile(tiles=2), Tile(rows=8, warps=4, ahead=2), Tile(rows=32, warps=4, step=4)], ids=str
)
def test_tiles_do_not_show(tile):
    rng = np.random.default_rng(3)
    made = layer(KINDS[0], 512, 640, 12, rng, "cuda")
    x_, ids_ = _device(activations(512, rng), choices(8, 4, 12, rng))
    x, grouped = matvec.quantise(x_), experts.plan(ids_, made.slots)
    h = experts.gate_up(made.slots, x, grouped)
    y = experts.down(made.slots, matvec.quantise(h), grouped)
    if tile.step != 4:
        assert torch.equal(experts.gate_up(made.slots, x, grouped, torch.full_like(h, float("nan")), tile), h)
    assert torch.equal(experts.down(made.slots, matvec.quantise(h), grouped, torch.full_like(y, float("nan")), tile), y)


@pytest.mark.parametrize("rows", [1, 2, 4, 5])
def test_a_shared_expert_of_other_types_beside_the_others(rows):
    rng = np.random.default_rng([6, rows])
    made = layer(KINDS[0], 512, 640, 12, rng, "cuda", shared=False)
    other = layer(("Q5_K", "Q6_K", "Q8_0"), 512, 640, 1, rng, "cuda", shared=False)
    shared = replace(other.slots, data=other.slots.data[int(other.slots.slot_of[0])][None])
    ids, x = choices(rows, 4, 12, rng), activations(512, rng)[8 - rows :]
    weights, own = rng.random((rows, 4), np.float32), rng.random(rows, np.float32)
    both = [made.rows(x, ids, shared=False), other.rows(x, np.zeros((rows, 1), dtype=np.int32), shared=False)]
    expected = judge.combine(np.concatenate(both, axis=1), np.concatenate([weights, own[:, None]], axis=1))
    x_, ids_, weights_, own_ = _device(x, ids, weights, own)
    found = experts.experts(made.slots, matvec.quantise(x_), ids_, weights_, own_, shared)
    np.testing.assert_array_equal(found.cpu().numpy().view(np.uint32), expected.view(np.uint32))


def test_a_whole_expert_of_the_real_size():
    rng = np.random.default_rng(4)
    made = layer(KINDS[0], 2560, 640, 3, rng, "cuda")
    ids, x = choices(2, 2, 3, rng), activations(2560, rng)[2:4]
    weights, shared = rng.random((2, 2), np.float32), rng.random(2, np.float32)
    x_, ids_, weights_, shared_ = _device(x, ids, weights, shared)
    found = experts.experts(made.slots, matvec.quantise(x_), ids_, weights_, shared_)
    np.testing.assert_array_equal(
        found.cpu().numpy().view(np.uint32), _expected(made, x, ids, weights, shared).view(np.uint32)
    )


def test_replays_of_a_graph_with_changing_choices():
    """The routing is read from device memory: one graph, other experts every time."""
    rng = np.random.default_rng(5)
    made = layer(KINDS[0], 256, 640, 12, rng, "cuda")
    x, ids = torch.empty((4, 256), device="cuda"), torch.zeros((4, 3), dtype=torch.int32, device="cuda")
    ids.copy_(torch.arange(12, dtype=torch.int32).view(4, 3))
    weights, shared = torch.empty((4, 3), device="cuda"), torch.empty(4, device="cuda")
    run = lambda: experts.experts(made.slots, matvec.quantise(x), ids, weights, shared)  # noqa: E731
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = run()
    for _ in range(12):
        choice, rows = (
            choices(4, 3, 12, rng, common=int(rng.integers(0, 3))),
            activations(256, rng)[rng.integers(0, 8, 4)],
        )
        p, s = rng.random((4, 3), np.float32), rng.random(4, np.float32)
        for target, source in ((x, rows), (ids, choice), (weights, p), (shared, s)):
            target.copy_(torch.from_numpy(np.ascontiguousarray(source)))
        out.fill_(float("nan"))
        graph.replay()
        expected = _expected(made, np.ascontiguousarray(rows), choice, p, s)
        np.testing.assert_array_equal(out.cpu().numpy().view(np.uint32), expected.view(np.uint32))


@triton.jit
def _both(x, up, e, h, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + i)
    tl.store(e + i, exp(value))
    tl.store(h + i, swiglu(value, tl.load(up + i)))


def test_exponential_and_swiglu():
    """Four million bit patterns from -90 to 90, and numbers evenly spread."""
    bits = np.linspace(0, 0x42B40000, 1 << 20).astype(np.uint32).view(np.float32)
    x = np.concatenate([bits, -bits, np.linspace(-90, 90, 1 << 21, dtype=np.float32)])
    up = np.random.default_rng(0).standard_normal(len(x)).astype(np.float32)
    x_, up_ = _device(x, up)
    e, h = torch.full_like(x_, float("nan")), torch.full_like(x_, float("nan"))
    _both[(len(x) // 1024,)](x_, up_, e, h, BLOCK=1024, enable_fp_fusion=False)
    np.testing.assert_array_equal(e.cpu().numpy().view(np.uint32), judge.exp(x).view(np.uint32))
    np.testing.assert_array_equal(h.cpu().numpy().view(np.uint32), (judge.silu(x) * up).view(np.uint32))
