"""The indexer's selection and the attention over it against slow readings of the spec (section 7)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.qsa import attend, select

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
