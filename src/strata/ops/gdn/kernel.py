"""The delta rule one token at a time, compiled: windows, prompts and commits alike.

Idea: a row meets the rows before it only through the state, so T rows leave the bytes that T single rows leave, however
they are cut into windows and passes. Heads are independent. For every row and head the state is walked twice: once to
predict the value from the key (sums over keys in rising order, side by side for all values), once to correct the state
and read the output from it. The decayed state is computed in both walks and stored in the second only, so the first row
reads the old state and writes the new one, and nothing is copied.

Bytes and operations of a row, per value head: 4 d^2 bytes read twice and written once; 8 d^2 operations. A head's state
(64 KB at d = 128) stays in the second-level cache for all rows of a pass, so memory sees 8 d^2 bytes a head and pass:
6.3 MB for a layer of the real model (nv = 48, d = 128), 0.2 MB for Pebble (nv = 6, d = 64).
`bench/delta_rule.py` measures it against the torch forms.

Order: exp(g) is float64's, rounded once; all else is float32, each operation rounded, none fused.
"""

import math
from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from strata.experts.kernels.cached import compiled


@njit(nogil=True)
def _predict(state, keys, decay, sums):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """The value that the decayed state holds for a key: sums over keys, four at a time in rising order."""
    width = len(keys)
    for c in range(width):
        sums[c] = np.float32(0)
    whole = width // 4 * 4
    for i in range(0, whole, 4):
        k0, k1, k2, k3 = keys[i], keys[i + 1], keys[i + 2], keys[i + 3]
        for c in range(width):
            total = sums[c] + (state[i, c] * decay) * k0
            total += (state[i + 1, c] * decay) * k1
            total += (state[i + 2, c] * decay) * k2
            sums[c] = total + (state[i + 3, c] * decay) * k3
    for i in range(whole, width):
        for c in range(width):
            sums[c] += (state[i, c] * decay) * keys[i]


@njit(nogil=True)
def _first(before, after, keys, queries, decay, delta, sums):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """Correct one state into another; `sums` becomes the output."""
    width = len(keys)
    for c in range(width):
        sums[c] = np.float32(0)
    for i in range(width):
        key, query = keys[i], queries[i]
        for c in range(width):
            s = before[i, c] * decay + key * delta[c]
            after[i, c] = s
            sums[c] += s * query


@njit(nogil=True)
def _next(state, keys, queries, decay, delta, sums):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    """As `_first`, in place: with the same array twice the compiler would have to fear that rows overlap."""
    width = len(keys)
    for c in range(width):
        sums[c] = np.float32(0)
    for i in range(width):
        key, query = keys[i], queries[i]
        for c in range(width):
            s = state[i, c] * decay + key * delta[c]
            state[i, c] = s
            sums[c] += s * query


def _rows(q, k, v, beta, g, before, after, out, sums, delta, outputs):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
    rows, heads, width = v.shape
    key_heads = k.shape[1]
    for j in range(heads):
        h = j % key_heads
        for t in range(rows):
            decay = np.float32(math.exp(np.float64(g[t, j])))
            _predict(before[j] if t == 0 else after[j], k[t, h], decay, sums)
            for c in range(width):
                delta[c] = (v[t, j, c] - sums[c]) * beta[t, j]
            if t == 0:
                _first(before[j], after[j], k[t, h], q[t, h], decay, delta, sums)
            else:
                _next(after[j], k[t, h], q[t, h], decay, delta, sums)
            if outputs:
                for c in range(width):
                    out[t, j, c] = sums[c]


@cache
def _kernel() -> Any:
    arrays = "float32[:,:,::1], float32[:,:,::1], float32[:,:,::1], float32[:,::1], float32[:,::1]"
    states = "float32[:,:,::1], float32[:,:,::1], float32[:,:,::1]"
    return compiled(_rows, f"void({arrays}, {states}, float32[::1], float32[::1], boolean)")


def steps(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Run T tokens through the recurrence; shapes, head order and result as `recurrent.recurrent`."""
    out = torch.empty(v.shape)
    return out, _run(q, k, v, beta, g, state, out)


def advance(k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> Tensor:
    """The state that `steps` leaves, without the outputs."""
    return _run(k, k, v, beta, g, state, None)


def _run(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor, out: Tensor | None) -> Tensor:
    if not len(k):  # nothing was accepted
        return state.clone()
    after = torch.empty_like(state)
    scratch = np.empty((2, state.shape[-1]), dtype=np.float32)
    arrays = [x.contiguous().numpy() for x in (q, k, v, beta, g, state)]
    room = after if out is None else out
    _kernel()(*arrays, after.numpy(), room.numpy(), scratch[0], scratch[1], out is not None)
    return after
