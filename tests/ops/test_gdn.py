"""The delta rule: kernel, recurrent and chunked against the formula in float64 (model spec, sections 6.1 and 6.2)."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.gdn import chunked, kernel, recurrent
from strata.ops.gdn.project import convolve, unit

EPS = 2.0**-23


def inputs(T, nk, nv, d, seed=0, decay=(0.05, 0.5)):
    rng = np.random.default_rng(seed)
    q, k = rng.standard_normal((2, T, nk, d))
    q, k = (x / np.sqrt((x * x).sum(-1, keepdims=True)) for x in (q, k))
    v = rng.standard_normal((T, nv, d))
    beta = rng.uniform(0, 1, (T, nv))
    g = -rng.uniform(*decay, (T, nv))
    state = rng.standard_normal((nv, d, d)) * 0.1
    return [x.astype(np.float32) for x in (q * d**-0.5, k, v, beta, g, state)]


def formula(q, k, v, beta, g, state):
    """Section 6.1 word for word in float64; value head j uses key head j mod nk."""
    q, k, v, beta, g, state = (x.astype(np.float64) for x in (q, k, v, beta, g, state))
    nk, out = k.shape[1], np.zeros_like(v)
    for t in range(len(k)):
        for j in range(v.shape[1]):
            s = state[j] * np.exp(g[t, j])
            delta = (v[t, j] - s.T @ k[t, j % nk]) * beta[t, j]
            state[j] = s + np.outer(k[t, j % nk], delta)
            out[t, j] = state[j].T @ q[t, j % nk]
    return out, state


def as_torch(arrays):
    return [torch.from_numpy(x) for x in arrays]


@pytest.mark.parametrize(("nk", "nv", "d"), [(2, 6, 32), (3, 6, 16), (1, 1, 8), (1, 2, 6)], ids=str)
@pytest.mark.parametrize("T", [1, 5, 64, 65, 150], ids="T{}".format)
def test_every_form_equals_the_formula(T, nk, nv, d):
    x = inputs(T, nk, nv, d)
    out, state = formula(*x)
    # A state entry is a sum of at most T products of numbers of size 1; each step adds a few roundings.
    limit = 8 * EPS * T**0.5 * max(1.0, np.abs(state).max())
    for form in (recurrent.recurrent, kernel.steps):
        o, s = form(*as_torch(x))
        assert np.abs(o.numpy() - out).max() < limit
        assert np.abs(s.numpy() - state).max() < limit
    for start in (0, 10, 63):
        o, s = chunked.chunked(*as_torch(x), start)
        assert np.abs(o.numpy() - out).max() < 4 * limit
        assert np.abs(s.numpy() - state).max() < 4 * limit


def test_advance_leaves_the_bytes_of_the_recurrence():
    q, k, v, beta, g, state = as_torch(inputs(9, 2, 6, 16))
    before = state.clone()
    for form, advance in ((recurrent.recurrent, recurrent.advance), (kernel.steps, kernel.advance)):
        _, expected = form(q, k, v, beta, g, state)
        assert torch.equal(advance(k, v, beta, g, state), expected)
    assert torch.equal(state, before), "the old state stays"


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 9))
def test_rows_have_the_same_bytes_however_they_are_cut(sizes, seed):
    x = as_torch(inputs(sum(sizes), 2, 6, 16, seed))
    o, s = kernel.steps(*x)
    parts, state, first = [], x[5], 0
    for size in sizes:
        part, state = kernel.steps(*(y[first : first + size] for y in x[:5]), state)
        parts.append(part)
        first += size
    assert torch.equal(torch.cat(parts), o)
    assert torch.equal(state, s)


def test_chunks_lie_at_absolute_positions():
    """Reading 200 tokens from position 40 at once, or cut at absolute multiples of 64, is the same arithmetic."""
    q, k, v, beta, g, state = as_torch(inputs(200, 2, 6, 16))
    o, s = chunked.chunked(q, k, v, beta, g, state, 40)
    parts, at = [], state
    for a, b in ((0, 24), (24, 152), (152, 200)):
        part, at = chunked.chunked(q[a:b], k[a:b], v[a:b], beta[a:b], g[a:b], at, 40 + a)
        parts.append(part)
    assert torch.equal(torch.cat(parts), o)
    assert torch.equal(at, s)


@pytest.mark.parametrize("form", ["kernel", "recurrent", "chunked"])
def test_extreme_decays(form):
    """Case P01: heads that forget everything, almost everything, and nothing, side by side."""
    x = inputs(64, 1, 4, 16)
    x[4][:, 0] = np.log(1e-12)
    x[4][:, 1] = 0.0
    x[4][:, 2] = -np.inf
    x[4][:, 3] = -0.01
    x[4][20, 3] = -1e4  # one token that forgets all among tokens that forget little
    out, state = formula(*x)
    run = {"kernel": kernel.steps, "recurrent": recurrent.recurrent, "chunked": lambda *a: chunked.chunked(*a, 0)}[form]
    o, s = run(*as_torch(x))
    assert np.isfinite(o.numpy()).all()
    assert np.abs(o.numpy() - out).max() < 32 * EPS * 8
    assert np.abs(s.numpy() - state).max() < 32 * EPS * 8 * max(1.0, np.abs(state).max())


@pytest.mark.parametrize("dilation", [1, 3], ids="dilation{}".format)
def test_convolution_looks_back_only(dilation):
    rng = np.random.default_rng(2)
    rows, taps = rng.standard_normal((20 + 3 * dilation, 5)), rng.standard_normal((5, 4))
    expected = np.zeros((20, 5))
    for t in range(20):
        for c in range(5):
            expected[t, c] = sum(taps[c, j] * rows[t + j * dilation, c] for j in range(4))
    got = convolve(torch.from_numpy(rows), torch.from_numpy(taps), dilation)
    assert np.abs(got.numpy() - expected).max() < 1e-14


def test_unit_uses_the_sum_and_an_epsilon_inside_the_root():
    x = np.array([[3e-4, 4e-4]])
    expected = x / np.sqrt(25e-8 + 1e-6)
    assert np.abs(unit(torch.from_numpy(x)).numpy() - expected).max() < 1e-15
