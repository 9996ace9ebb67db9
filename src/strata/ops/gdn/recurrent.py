"""The delta rule one token at a time (model spec, section 6.1): windows and commits.

Value head j uses key head j mod nk (the file's tiled order). A row meets the rows before it only through the state,
so n rows of a longer window leave the bytes that n single steps leave.
"""

import torch
from torch import Tensor


def recurrent(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Run T tokens through the recurrence.

    Args:
        q: float32 [T, nk, d].
        k: float32 [T, nk, d].
        v: float32 [T, nv, d].
        beta: float32 [T, nv].
        g: float32 [T, nv].
        state: float32 [nv, d, d], indexed [head, key, value]; not changed.

    Returns:
        Outputs [T, nv, d], and the state after the last token.
    """
    outputs = []
    for t in range(k.shape[0]):
        state = _step(k[t], v[t], beta[t], g[t], state)
        outputs.append((state * _tiled(q[t], v)).sum(1))
    return torch.stack(outputs), state


def advance(k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> Tensor:
    """The state that `recurrent` leaves, without the outputs."""
    for t in range(k.shape[0]):
        state = _step(k[t], v[t], beta[t], g[t], state)
    return state


def _step(k: Tensor, v: Tensor, beta: Tensor, g: Tensor, state: Tensor) -> Tensor:
    """One token: k [nk, d], v [nv, d], beta and g [nv]."""
    key = _tiled(k, v)
    state = state * torch.exp(g)[:, None, None]
    delta = (v - (state * key).sum(1)) * beta[:, None]
    return state + key * delta[:, None, :]


def _tiled(x: Tensor, v: Tensor) -> Tensor:
    """Key heads [nk, d] repeated for the value heads, as a column: [nv, d, 1]."""
    return x.repeat(v.shape[-2] // x.shape[0], 1)[:, :, None]
