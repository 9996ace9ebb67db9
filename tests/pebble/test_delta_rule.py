"""The chunked delta rule and its two hand-written gradients."""

import pytest
import torch

from pebble.net import delta
from pebble.net.delta import C, ChunkStates, UnitLowerInverse, delta_rule


def _recurrent(q, k, v, beta, g):
    """Section 6.1, one token at a time; q, k [T, nk, d], v [T, nv, d], beta and g [T, nv]."""
    steps, nv, d = v.shape
    repeat = nv // k.shape[1]
    state = torch.zeros(nv, d, d, dtype=v.dtype)
    out = torch.empty_like(v)
    for t in range(steps):
        keys, queries = k[t].repeat_interleave(repeat, 0), q[t].repeat_interleave(repeat, 0)
        state = state * g[t].exp()[:, None, None]
        change = (v[t] - torch.einsum("hkv,hk->hv", state, keys)) * beta[t][:, None]
        state = state + torch.einsum("hk,hv->hkv", keys, change)
        out[t] = torch.einsum("hkv,hk->hv", state, queries)
    return out


def _inputs(rows, chunks, nk, nv, d, dtype):
    gen = torch.Generator().manual_seed(3)
    n = rows * chunks

    def normal(*shape):
        return torch.randn(*shape, generator=gen, dtype=dtype)

    q, k = (torch.nn.functional.normalize(normal(n, nk, C, d), dim=-1) for _ in range(2))
    return q, k, normal(n, nv, C, d), normal(n, nv, C).sigmoid(), -normal(n, nv, C).exp() * 0.1


@pytest.mark.parametrize(("rows", "chunks", "nk", "nv", "d"), [(1, 3, 1, 3, 8), (2, 2, 2, 4, 16)])
def test_chunks_equal_the_recurrence(rows, chunks, nk, nv, d):
    q, k, v, beta, g = _inputs(rows, chunks, nk, nv, d, torch.float64)
    ours = delta_rule(q, k, v, beta, g, rows).view(rows, chunks * C, nv, d)

    def flat(x, row):
        return x.view(rows, chunks, x.shape[1], C, -1)[row].transpose(1, 2).flatten(0, 1)

    for row in range(rows):
        theirs = _recurrent(*(flat(x, row) for x in (q, k, v)), *(flat(x, row)[..., 0] for x in (beta, g)))
        # float64 rounding over a few hundred steps of order-one numbers
        assert (ours[row] - theirs).abs().max() < 1e-11


def test_inverse_is_accurate_with_repeated_keys():
    # Equal keys and beta 1 make A all ones below the diagonal: the case in which a power series fails.
    a = torch.ones(2, C, C).tril(-1)
    x = UnitLowerInverse.apply(a)
    assert (x.double() @ (torch.eye(C) + a).double() - torch.eye(C)).abs().max() < 1e-6


@pytest.mark.parametrize("n", [2, 8])
def test_inverse_gradient(n):
    a = torch.randn(2, 1, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).tril(-1)

    def below(x):
        return UnitLowerInverse.apply(x.tril(-1))

    assert torch.autograd.gradcheck(below, (a.requires_grad_(),))


def test_inverse_gradient_stays_below_the_diagonal():
    a = torch.randn(1, 1, 8, 8, generator=torch.Generator().manual_seed(0)).tril(-1).requires_grad_()
    (g,) = torch.autograd.grad(UnitLowerInverse.apply(a).square().sum(), a)
    assert torch.equal(g, g.tril(-1))


@pytest.mark.parametrize("chunks", [1, 2, 4])
def test_chunk_states_gradient(chunks):
    gen = torch.Generator().manual_seed(1)
    p, q = (torch.randn(2, chunks, 3, 2, 2, dtype=torch.float64, generator=gen).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(ChunkStates.apply, (p, q))


def test_chunk_states_follow_their_recurrence():
    gen = torch.Generator().manual_seed(2)
    p, q = (torch.randn(2, 3, 1, 2, 2, dtype=torch.float64, generator=gen) for _ in range(2))
    s = ChunkStates.apply(p, q)
    assert (s[:, 0] == 0).all()
    for c in range(2):
        torch.testing.assert_close(s[:, c + 1], p[:, c] @ s[:, c] + q[:, c])


def test_chunk_length_is_what_the_rows_are_cut_for():
    assert delta.C == 64
