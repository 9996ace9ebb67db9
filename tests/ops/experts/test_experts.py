"""Grouped experts in Triton's interpreter against the judge, byte for byte."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from strata.errors import FormatError
from strata.experts import judge
from strata.ops.experts import triton as experts
from strata.ops.matvec.triton import quantise
from strata.ops.variants import Tile
from support.corners import activations
from support.grouped import choices, layer

WHOLE = Tile(rows=128)
KINDS = [
    ("IQ3_XXS", "IQ3_XXS", "IQ4_NL"),
    ("Q8_0", "Q8_0", "Q8_0"),
    ("Q4_K", "IQ3_S", "Q5_1"),
    ("NVFP4", "NVFP4", "NVFP4"),
]


def _run(made, x, ids, weights, shared_weights, tiles=(WHOLE, WHOLE)):
    """All launches, outputs poisoned."""
    nan = float("nan")
    slots, quantised = made.slots, quantise(torch.from_numpy(x))
    grouped = experts.plan(torch.from_numpy(ids), slots)
    h = torch.full((grouped.pairs_in_all, slots.layout.inner), nan)
    experts.gate_up(slots, quantised, grouped, h, tiles[0])
    y = torch.full((grouped.pairs_in_all, slots.layout.hidden), nan)
    experts.down(slots, quantise(h), grouped, y, tiles[1])
    shared = () if shared_weights is None else (y[ids.size :], torch.from_numpy(shared_weights))
    out = torch.full((len(x), slots.layout.hidden), nan)
    return experts.combine(y, torch.from_numpy(weights), *shared, out=out).numpy()


CASES = [(KINDS[0], rows) for rows in (1, 2, 3, 8)] + [(kinds, rows) for kinds in KINDS[1:] for rows in (2, 4)]


@pytest.mark.parametrize(
    ("kinds", "rows"), CASES, ids=lambda part: "-".join(part) if isinstance(part, tuple) else str(part)
)
def test_bytes_of_the_judge(kinds, rows):
    """One to eight rows for one expert: all three bodies, the last one twice; the shared expert last."""
    rng = np.random.default_rng([rows, *"".join(kinds).encode()])
    made = layer(kinds, 256, 64, 5, rng)
    ids = choices(rows, 3, 5, rng)
    x, weights, shared = (
        activations(256, rng)[8 - rows :],
        rng.random((rows, 3), np.float32),
        rng.random(rows, np.float32),
    )
    expected = judge.combine(made.rows(x, ids, shared=True), np.concatenate([weights, shared[:, None]], axis=1))
    np.testing.assert_array_equal(_run(made, x, ids, weights, shared).view(np.uint32), expected.view(np.uint32))


def test_other_tiles_and_no_shared_expert():
    """Steps of four blocks for down, tails of rows, steps that are not full, one pair at a time."""
    rng = np.random.default_rng(4)
    made = layer(("Q8_0", "Q8_0", "IQ4_NL"), 96, 640, 4, rng, shared=False)
    ids, x, weights = choices(3, 2, 4, rng), activations(96, rng)[2:5], rng.random((3, 2), np.float32)
    expected = judge.combine(made.rows(x, ids, shared=False), weights)
    tiles = Tile(rows=256, tiles=3, pairs=1), Tile(rows=64, tiles=1, step=4, pairs=1)
    np.testing.assert_array_equal(_run(made, x, ids, weights, None, tiles).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_shared_expert_of_other_types_beside_the_others(rows):
    """In a slot of its own: its rows come last, with the judge's bytes, and nothing else changes."""
    rng = np.random.default_rng([7, rows])
    made = layer(KINDS[0], 256, 64, 5, rng, shared=False)
    other = layer(("Q5_K", "Q8_0", "Q8_0"), 256, 64, 1, rng, shared=False)
    assert experts.joinable(made.slots, other.slots)
    shared = replace(other.slots, data=other.slots.data[int(other.slots.slot_of[0])][None])
    ids, x = choices(rows, 3, 5, rng), activations(256, rng)[:rows]
    weights, own = rng.random((rows, 3), np.float32), rng.random(rows, np.float32)
    visited = np.zeros((rows, 1), dtype=np.int32)
    both = np.concatenate([made.rows(x, ids, shared=False), other.rows(x, visited, shared=False)], axis=1)
    expected = judge.combine(both, np.concatenate([weights, own[:, None]], axis=1))
    given = (torch.from_numpy(a) for a in (ids, weights, own))
    found = experts.experts(made.slots, quantise(torch.from_numpy(x)), *given, shared)
    np.testing.assert_array_equal(found.numpy().view(np.uint32), expected.view(np.uint32))


def test_missing_experts_are_left_to_others():
    rng = np.random.default_rng(5)
    made = layer(("Q8_0", "Q8_0", "Q8_0"), 64, 64, 4, rng)
    made.slots.slot_of[2] = -1
    ids, x = np.array([[2, 0], [1, 2]], dtype=np.int32), activations(64, rng)[:2]
    grouped = experts.plan(torch.from_numpy(ids), made.slots)
    h = experts.gate_up(made.slots, quantise(torch.from_numpy(x)), grouped, torch.full((6, 64), 7.0), WHOLE)
    written = (h != 7).any(1).tolist()
    assert written == [False, True, True, False, True, True]


def test_combine_has_the_judges_bytes():
    rng = np.random.default_rng(2)
    rows = (rng.standard_normal((3, 11, 640)) * 10.0 ** rng.uniform(-20, 10, (3, 11, 1))).astype(np.float32)
    weights = rng.random((3, 11), np.float32)
    y = torch.from_numpy(np.ascontiguousarray(rows[:, :10]).reshape(30, 640))
    shared = torch.from_numpy(np.ascontiguousarray(rows[:, 10])), torch.from_numpy(weights[:, 10].copy())
    found = experts.combine(y, torch.from_numpy(weights[:, :10].copy()), *shared)
    np.testing.assert_array_equal(found.numpy().view(np.uint32), judge.combine(rows, weights).view(np.uint32))


def test_what_does_not_fit_is_refused():
    rng = np.random.default_rng(3)
    made = layer(("Q8_0", "Q8_0", "Q8_0"), 64, 64, 2, rng)
    with pytest.raises(FormatError, match="int64"):
        experts.plan(torch.zeros((1, 2), dtype=torch.int64), made.slots)
    grouped = experts.plan(torch.zeros((1, 1), dtype=torch.int32), made.slots)
    with pytest.raises(FormatError, match="width of 32"):
        experts.gate_up(made.slots, quantise(torch.zeros((1, 32))), grouped)
    with pytest.raises(FormatError, match="weights"):
        experts.combine(torch.zeros((1, 64)), torch.zeros((1, 1)), torch.zeros((1, 64)))
