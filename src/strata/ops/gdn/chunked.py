"""The delta rule a chunk at a time (model spec, section 6.2): prompts.

Chunks lie at fixed absolute positions, multiples of CHUNK, so that a prompt read in pieces that end on such a
multiple goes through the same arithmetic as one read at once.
"""

import torch
from torch import Tensor

CHUNK = 64
"""Tokens per chunk."""


def chunked(
    q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, start: int
) -> tuple[Tensor, Tensor]:
    """Run T tokens, the first at absolute position `start`.

    Shapes and head order as in `recurrent.recurrent`.
    """
    tiles = v.shape[1] // k.shape[1]
    # heads first: [heads, T, d]
    q, k = (x.repeat(1, tiles, 1).transpose(0, 1) for x in (q, k))
    v, beta, g = v.transpose(0, 1), beta.T, g.T
    outputs, first, count = [], 0, k.shape[1]
    while first < count:
        last = min(count, first + CHUNK - (start + first) % CHUNK)
        piece = slice(first, last)
        o, state = _chunk(q[:, piece], k[:, piece], v[:, piece], beta[:, piece], g[:, piece], state)
        outputs.append(o)
        first = last
    return torch.cat(outputs, 1).transpose(0, 1), state


def _chunk(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """One chunk of C <= CHUNK tokens, heads first."""
    decay = _decay_between(g)  # [heads, C, C]
    since_start = torch.exp(g.cumsum(-1))[..., None]  # [heads, C, 1]
    kb = k * beta[..., None]
    lower = (kb @ k.mT * decay).tril(-1)
    eye = torch.eye(k.shape[1], dtype=k.dtype)
    rhs = torch.cat((v * beta[..., None], kb * since_start), -1)
    u, w = torch.linalg.solve_triangular(eye + lower, rhs, upper=False, unitriangular=True).split(v.shape[-1], -1)
    fresh = u - w @ state
    o = (q * since_start) @ state + (q @ k.mT * decay) @ fresh
    to_end = decay[:, -1, :, None]  # decay from each token to the chunk's last
    return o, since_start[:, -1, :, None] * state + (k * to_end).mT @ fresh


def _decay_between(g: Tensor) -> Tensor:
    """Decay from token j to token i, exp(g[j+1] + ... + g[i]) for j <= i, else 0: [heads, C, C].

    Each sum is taken on its own instead of as a difference of two running sums: after a token that forgets
    everything the difference would have lost the digits of its neighbours, or be infinity minus infinity.
    """
    size = g.shape[-1]
    steps = g[..., None].expand(*g.shape, size).tril(-1)  # [heads, i, j] holds g[i] where i > j
    return torch.exp(steps.cumsum(-2)).tril()
