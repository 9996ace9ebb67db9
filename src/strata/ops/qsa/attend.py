"""Attention over selected tokens, its gate and its output projection (model spec, section 7.3)."""

import torch
from torch import Tensor

from strata.ops.elementwise.fixed import sigmoid
from strata.ops.linear.fixed import linear


def attend(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Softmax attention of each row over the tokens it may see.

    Args:
        q: float32 [T, nh, hd].
        k: float32 [n, nkv, hd]; query head h reads head h // (nh/nkv).
        v: as k.
        allowed: bool [T, n]; every row allows at least one token.

    Returns:
        float32 [T, nh, hd].
    """
    nkv = k.shape[1]
    grouped = q.unflatten(1, (nkv, -1))  # [T, nkv, nh/nkv, hd]
    logits = torch.einsum("tgqd,ngd->tgqn", grouped, k) * q.shape[-1] ** -0.5
    logits = logits.masked_fill(~allowed[:, None, None, :], float("-inf"))
    return torch.einsum("tgqn,ngd->tgqd", logits.softmax(-1), v).flatten(1, 2)


def attend_row(q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """`attend` for one row, reading only the tokens it selected: [1, nh, hd]."""
    cells = allowed[0].nonzero()[:, 0]
    chosen = torch.ones(1, len(cells), dtype=torch.bool)
    return attend(q, k[cells], v[cells], chosen)


def output(o: Tensor, gate: Tensor, w: Tensor) -> Tensor:
    """Gate `o` [T, nh, hd] elementwise, then project with `w` [H, nh*hd]."""
    return linear((o * sigmoid(gate)).flatten(1), w)
