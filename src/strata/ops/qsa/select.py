"""The indexer: which tokens a row may attend (model spec, section 7.2).

Tie rule, which the model leaves open: larger score first, then the lower block.
"""

import torch
from torch import Tensor


def scores(iq: Tensor, keys: Tensor) -> Tensor:
    """Score every block for every row.

    Args:
        iq: float32 [T, ih, id].
        keys: float32 [nb, id].

    Returns:
        float32 [T, nb]: the sum over heads of relu(q.k) / sqrt(id).
    """
    return torch.relu(iq @ keys.T).sum(1) / keys.shape[1] ** 0.5


def choose(scores: Tensor, complete: Tensor, blocks: int) -> Tensor:
    """Choose the best blocks of each row.

    Args:
        scores: float32 [T, nb].
        complete: int64 [T], how many leading blocks are complete for each row; later ones are never chosen.
        blocks: how many blocks the budget holds.

    Returns:
        bool [T, nb].
    """
    count = scores.shape[1]
    hidden = torch.arange(count)[None, :] >= complete[:, None]
    order = torch.sort(scores.masked_fill(hidden, -1.0), dim=-1, descending=True, stable=True).indices
    chosen = torch.zeros_like(hidden).scatter_(1, order[:, :blocks], value=True)
    return chosen & ~hidden


def select(iq: Tensor, keys: Tensor, start: int, blocks: int, ratio: int) -> Tensor:
    """Say which tokens each row attends: the chosen blocks and the row's own incomplete block.

    Args:
        iq: float32 [T, ih, id], rows of the tokens start..start+T-1.
        keys: float32 [nb, id], keys of all complete blocks.
        start: absolute index of the first row.
        blocks: blocks the budget holds.
        ratio: tokens per block.

    Returns:
        bool [T, start+T].
    """
    rows = torch.arange(start, start + iq.shape[0])
    seen = start + iq.shape[0]
    complete = (rows + 1) // ratio
    if int(complete[-1]) <= blocks:  # the budget holds everything: plain causal attention
        return torch.arange(seen)[None, :] <= rows[:, None]
    chosen = choose(scores(iq, keys), complete, blocks)
    token = torch.arange(seen)
    allowed = torch.zeros(len(rows), seen, dtype=torch.bool)
    covered = chosen.shape[1] * ratio
    allowed[:, :covered] = chosen.repeat_interleave(ratio, dim=1)
    tail = (token[None, :] >= complete[:, None] * ratio) & (token[None, :] <= rows[:, None])
    return allowed | tail
