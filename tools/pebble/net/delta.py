"""The gated delta rule in chunks (section 6.2), batched over all chunks, rows and heads; two custom gradients.

Everything is float32 here. Chunks are [N / C, heads, C, d]; a row's chunks follow each other.
"""

from typing import Any

import torch
from torch import Tensor

from pebble.net.fused import fused

C = 64  # tokens per chunk: matrices of 64 x 64 suit the matrix units, and six doublings invert one


class UnitLowerInverse(torch.autograd.Function):
    """``(I + A)^-1`` for strictly lower triangular ``A`` [..., n, n], n a power of two.

    Doubles the block size: with X the inverse of the diagonal blocks and B the lower-left blocks of the next size,
    X <- X - X B X. A power series would be shorter and useless in float32 (errors of 1e9 with repeated keys).
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        """The inverse of ``I + a``."""
        shape, n = a.shape, a.shape[-1]
        a = a.reshape(-1, n, n)
        index = torch.arange(n, device=a.device)
        x = torch.eye(n, device=a.device, dtype=a.dtype) - a * _corner(index, 1)
        size = 2
        while size < n:
            x = torch.baddbmm(x, torch.bmm(x, a * _corner(index, size)), x, alpha=-1)
            size *= 2
        ctx.save_for_backward(x)
        return x.view(shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        """With X the inverse: -X^T G X^T, strictly lower part."""
        (x,) = ctx.saved_tensors
        g = grads[0].reshape(x.shape)
        xt = x.transpose(1, 2)
        return -torch.bmm(torch.bmm(xt, g), xt).tril(-1).view(grads[0].shape)


def _corner(index: Tensor, size: int) -> Tensor:
    """0/1 mask of the lower-left ``size`` blocks inside diagonal blocks of twice that size."""
    block = index // size
    return (block[:, None] == block[None, :] + 1) & (block[:, None] % 2 == 1)


class ChunkStates(torch.autograd.Function):
    """States entering each chunk: ``S[0] = 0``, ``S[c+1] = P[c] S[c] + Q[c]``. All [rows, chunks, heads, d, d]."""

    @staticmethod
    def forward(ctx: Any, p: Tensor, q: Tensor) -> Tensor:
        """All states."""
        rows, count, heads, d, _ = p.shape
        p = p.transpose(0, 1).reshape(count, rows * heads, d, d)
        q = q.transpose(0, 1).reshape(count, rows * heads, d, d)
        s = torch.zeros_like(q)
        for c in range(count - 1):
            torch.baddbmm(q[c], p[c], s[c], out=s[c + 1])
        ctx.save_for_backward(p, s)
        ctx.rows = rows
        return s.view(count, rows, heads, d, d).transpose(0, 1).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        """The recurrence run backwards."""
        p, s = ctx.saved_tensors
        count, both, d, _ = p.shape
        rows = ctx.rows
        g = grads[0].transpose(0, 1).reshape(count, both, d, d)
        total = torch.zeros_like(g)  # gradient of S[c+1], kept at c
        for c in range(count - 2, -1, -1):
            torch.baddbmm(g[c + 1], p[c + 1].transpose(1, 2), total[c + 1], out=total[c])
        grad_p = torch.matmul(total, s.transpose(2, 3))
        shape = (count, rows, both // rows, d, d)
        return grad_p.view(shape).transpose(0, 1), total.view(shape).transpose(0, 1)


def chunked(x: Tensor) -> Tensor:
    """[N, heads, d] -> [N / C, heads, C, d]."""
    return x.view(-1, C, *x.shape[1:]).transpose(1, 2)


@fused
def within(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    """All that a chunk computes from its own rows before the inverse.

    q, k [N/C, nk, C, d]; v [N/C, nv, C, d]; beta, g [N/C, nv, C]. Value heads are grouped by key head.
    Returns A, lower attention, beta*V, beta*exp(G)*K, exp(G)*Q, exp(G_last - G)*K, exp(G_last).
    """
    repeat = v.shape[1] // k.shape[1]
    total = g.cumsum(-1)
    steps = torch.arange(C, device=g.device)
    causal = steps[:, None] >= steps[None, :]
    # The difference is masked before exp: for j > i it is positive and would overflow.
    decay = torch.exp((total[..., :, None] - total[..., None, :]).masked_fill(~causal, float("-inf")))
    kk = (k @ k.transpose(2, 3)).repeat_interleave(repeat, 1)
    qk = (q @ k.transpose(2, 3)).repeat_interleave(repeat, 1)
    a = (beta[..., None] * kk * decay).tril(-1)
    keys, queries = k.repeat_interleave(repeat, 1), q.repeat_interleave(repeat, 1)
    grown, last = torch.exp(total)[..., None], total[..., -1:]
    return (
        a,
        qk * decay,
        beta[..., None] * v,
        beta[..., None] * grown * keys,
        grown * queries,
        torch.exp(last - total)[..., None] * keys,
        torch.exp(last)[..., None],
    )


@fused
def transitions(inverse: Tensor, bv: Tensor, bk: Tensor, kd: Tensor, last: Tensor) -> tuple[Tensor, ...]:
    """U, W of every chunk, and the map (P, Q) it applies to the state that enters it."""
    u, w = inverse @ bv, inverse @ bk
    eye = torch.eye(bk.shape[-1], device=bk.device, dtype=bk.dtype)
    kt = kd.transpose(2, 3)
    return u, w, last * eye - kt @ w, kt @ u


@fused
def outputs(u: Tensor, w: Tensor, states: Tensor, qe: Tensor, attention: Tensor) -> Tensor:
    """Rows of all chunks, given the states that enter them: [N, nv, d]."""
    o = qe @ states + attention @ (u - w @ states)
    return o.transpose(1, 2).flatten(0, 1)


def delta_rule(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, rows: int) -> Tensor:
    """The whole rule.

    Args:
        q: float32 [N/C, nk, C, d], normalised and scaled.
        k: float32 [N/C, nk, C, d], normalised.
        v: float32 [N/C, nv, C, d].
        beta: float32 [N/C, nv, C].
        g: float32 [N/C, nv, C], log decay.
        rows: sequences in the batch; each starts with an empty state.

    Returns:
        float32 [N, nv, d].
    """
    a, attention, bv, bk, qe, kd, last = within(q, k, v, beta, g)
    u, w, p, qm = transitions(UnitLowerInverse.apply(a), bv, bk, kd, last)
    split = (rows, -1, *p.shape[1:])
    states = ChunkStates.apply(p.view(split), qm.view(split))
    return outputs(u, w, states.flatten(0, 1), qe, attention)
