"""Sparse attention over keys and values that are stored in another type than float32 (`strata.model.kv`).

A row is turned into the frame of what is stored, attended there by `kernel.attend`, and its output turned back. Which
tokens are decoded is a matter of speed and not of bytes: all of them, once, where the rows attend more tokens in sum
than there are (prompts, and whatever the budget holds whole); else, row by row, those that the indexer chose.
"""

import torch
from torch import Tensor

from strata.model.kv import Codec
from strata.ops.qsa import kernel


def attend(q: Tensor, iq: Tensor, k: Tensor, v: Tensor, keys: Tensor, blocks: int, ratio: int, codec: Codec) -> Tensor:
    """As `kernel.attend`, with `k` and `v` [n, *stored] as the codec has them."""
    q, rows, n = codec.turn(q), len(q), len(k)
    first = n - rows  # tokens before the rows
    if (first + 1) // ratio <= blocks or rows * (blocks + 1) * ratio > n:
        return codec.turn(kernel.attend(q, iq, codec.decode(k), codec.decode(v), keys, blocks, ratio))
    parts = []
    for row in range(rows):
        cells = kernel.select(iq[row], keys, first + row + 1, blocks, ratio)
        one = slice(row, row + 1)
        # As a row of its own that sees what was chosen and nothing else.
        parts.append(
            kernel.attend(q[one], iq[one], codec.decode(k[cells]), codec.decode(v[cells]), keys, len(cells), ratio)
        )
    return codec.turn(torch.cat(parts))
