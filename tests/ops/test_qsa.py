"""The indexer's selection and the attention over it against slow readings of the spec (section 7)."""

import tracemalloc

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.qsa import attend, kernel, reference, select

RATIO = 4


def slow_selection(iq, keys, t, blocks):
    """Tokens that row t attends, by the words of section 7.2 and our tie rule."""
    n = t + 1
    complete = n // RATIO
    scores = [
        sum(max(float(q @ keys[b]), 0.0) for q in iq.astype(np.float64)) / np.sqrt(keys.shape[1])
        for b in range(complete)
    ]
    chosen = sorted(range(complete), key=lambda b: (-scores[b], b))[:blocks]
    return {4 * b + i for b in chosen for i in range(RATIO)} | set(range(RATIO * complete, n))


@pytest.mark.parametrize("blocks", [1, 4, 16], ids="blocks{}".format)
def test_selection_of_every_length(blocks):
    rng = np.random.default_rng(0)
    keys = rng.standard_normal((75, 8)).astype(np.float32)
    iq = rng.standard_normal((300, 2, 8)).astype(np.float32)
    for t in range(300):
        got = select.select(torch.from_numpy(iq[t : t + 1]), torch.from_numpy(keys[: (t + 1) // 4]), t, blocks, RATIO)
        assert set(got[0].nonzero()[:, 0].tolist()) == slow_selection(iq[t], keys, t, blocks)
        assert got.sum() <= blocks * RATIO + RATIO - 1
        if t + 1 <= blocks * RATIO + RATIO - 1:
            assert got.all(), "within the budget nothing is left out"


def test_rows_of_one_call_select_as_they_do_alone():
    rng = np.random.default_rng(1)
    keys = torch.from_numpy(rng.standard_normal((50, 8)).astype(np.float32))
    iq = torch.from_numpy(rng.standard_normal((100, 2, 8)).astype(np.float32))
    for size in (1, 16, 100):  # case O11: the same blocks however the rows are grouped
        for first in range(0, 100, size):
            last = min(first + size, 100)
            together = select.select(iq[first:last], keys[: (100 + last) // 4], 100 + first, 4, RATIO)
            for t in range(first, last):
                alone = select.select(iq[t : t + 1], keys[: (101 + t) // 4], 100 + t, 4, RATIO)
                assert torch.equal(together[t - first, : 101 + t], alone[0])
                assert not together[t - first, 101 + t :].any()


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=1, max_size=40), st.integers(1, 12), st.data())
def test_ties_go_to_the_lower_block(values, blocks, data):
    complete = data.draw(st.integers(0, len(values)))
    got = select.choose(torch.tensor([values]), torch.tensor([complete]), blocks)[0]
    best = sorted(range(complete), key=lambda b: (-values[b], b))[:blocks]
    assert got.nonzero()[:, 0].tolist() == sorted(best)


def test_a_complete_block_of_its_own_may_lose():
    """At a multiple of the ratio a row's own block competes like any other (section 7.2)."""
    keys = torch.tensor([[1.0], [1.0], [-1.0]])
    allowed = select.select(torch.tensor([[[1.0]]]), keys, 11, 2, RATIO)
    assert allowed[0].nonzero()[:, 0].tolist() == list(range(8))


def test_attention_equals_the_formula():
    rng = np.random.default_rng(3)
    q, k, v = rng.standard_normal((5, 4, 16)), rng.standard_normal((30, 2, 16)), rng.standard_normal((30, 2, 16))
    allowed = rng.random((5, 30)) < 0.4
    allowed[:, 0] = True
    expected = np.zeros_like(q)
    for t in range(5):
        for h in range(4):
            logits = k[allowed[t], h // 2] @ q[t, h] / 4
            p = np.exp(logits - logits.max())
            expected[t, h] = p / p.sum() @ v[allowed[t], h // 2]
    args = [torch.from_numpy(x) for x in (q, k, v, allowed)]
    assert np.abs(attend.attend(*args).numpy() - expected).max() < 1e-14
    rows = torch.cat([attend.attend_row(args[0][t : t + 1], args[1], args[2], args[3][t : t + 1]) for t in range(5)])
    assert np.abs(rows.numpy() - expected).max() < 1e-14


def slow_attention(q, iq, k, v, keys, blocks):
    """The formula in float64 over the tokens that `slow_selection` names."""
    out, first = np.zeros(q.shape), len(k) - len(q)
    group = q.shape[1] // k.shape[1]
    for row in range(len(q)):
        cells = sorted(slow_selection(iq[row], keys, first + row, blocks))
        for h in range(q.shape[1]):
            logits = k[cells, h // group].astype(np.float64) @ q[row, h] / np.sqrt(q.shape[2])
            p = np.exp(logits - logits.max())
            out[row, h] = p / p.sum() @ v[cells, h // group]
    return out


def attention_inputs(n, rows, seed=0, width=24, nh=6, nkv=2):
    rng = np.random.default_rng(seed)
    shapes = ((rows, nh, width), (rows, 2, 8), (n, nkv, width), (n, nkv, width), (n // RATIO, 8))
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("blocks", [1, 4, 16, 100], ids="blocks{}".format)
@pytest.mark.parametrize("n", [1, 3, 4, 5, 17, 63, 64, 65, 67, 68, 300], ids="n{}".format)
def test_the_kernel_equals_the_formula(n, blocks):
    """Case O04: the budget (64 tokens at 16 blocks) not reached, just reached, and exceeded."""
    x = attention_inputs(n, min(n, 5))
    got = kernel.attend(*(torch.from_numpy(a) for a in x), blocks, RATIO).numpy()
    # a weighted mean of numbers of size 4; exponentials and one rounding of the logits, which are of size 5
    assert np.abs(got - slow_attention(*x, blocks)).max() < 4 * 16 * 2.0**-23
    plain = reference.attend(*(torch.from_numpy(a).double() for a in x), blocks, RATIO).numpy()
    assert np.abs(got - plain).max() < 4 * 16 * 2.0**-23


def test_within_the_budget_the_kernel_is_dense_to_the_bit():
    """Case O04: 64 tokens of budget, lengths 1 to 67; from 68 on a block is left out."""
    for n in range(1, 69):
        x = [torch.from_numpy(a) for a in attention_inputs(n, 1, seed=n)]
        sparse, dense = kernel.attend(*x, 16, RATIO), kernel.attend(*x, n, RATIO)
        assert torch.equal(sparse, dense) == (n < 68)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 12), st.integers(0, 5), st.data())
def test_the_kernel_gives_ties_to_the_lower_block(blocks, seed, data):
    """Keys of few values, so that scores tie; values are one-hot, so that the output shows who was attended."""
    count = data.draw(st.integers(1, 40))
    n = count * RATIO + data.draw(st.integers(0, RATIO - 1))
    rng = np.random.default_rng(seed)
    keys = rng.choice([-1.0, 0.0, 0.5, 1.0], (count, 8)).astype(np.float32)
    iq = rng.choice([0.0, 1.0], (1, 2, 8)).astype(np.float32)
    q, k = np.zeros((1, 1, n), np.float32), np.zeros((n, 1, n), np.float32)
    v = np.eye(n, dtype=np.float32)[:, None]
    out = kernel.attend(*(torch.from_numpy(a) for a in (q, iq, k, v, keys)), blocks, RATIO)
    assert set(out[0, 0].nonzero()[:, 0].tolist()) == slow_selection(iq[0], keys, n - 1, blocks)


def test_kernel_rows_do_as_they_do_alone_and_need_room_for_one():
    """Case O11: 512 rows over 4,000 tokens, in calls of 1, 16 and 512 rows: same bytes, room for one row's scores."""
    x = [torch.from_numpy(a) for a in attention_inputs(4000, 512, width=16, nh=2, nkv=1)]
    kernel.attend(*(a[:1] for a in x), 1, RATIO)  # compiled before memory is watched

    def read(size):
        return torch.cat(
            [
                kernel.attend(
                    x[0][i : i + size], x[1][i : i + size], *(a[: 3488 + i + size] for a in x[2:4]), x[4], 16, 4
                )
                for i in range(0, 512, size)
            ]
        )

    expected = read(512)
    for size in (1, 16):
        assert torch.equal(read(size), expected)
    peaks = []
    for _ in range(5):  # other threads of the process may allocate meanwhile
        tracemalloc.start()
        read(512)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(peaks) < 64 * 1024, "the scores of 512 rows would be 2 MB"


def test_numbers_that_are_not_finite_stay_in_their_row():
    """A row of NaN chooses within the cache and spoils no other row (case P02)."""
    x = [torch.from_numpy(a) for a in attention_inputs(300, 3)]
    clean = kernel.attend(*x, 4, RATIO)
    for value in (float("nan"), -float("nan"), float("inf")):
        q, iq = x[0].clone(), x[1].clone()
        q[1], iq[1] = value, value
        got = kernel.attend(q, iq, *x[2:], 4, RATIO)
        assert torch.equal(got[[0, 2]], clean[[0, 2]])
        assert not got[1].isfinite().any()
