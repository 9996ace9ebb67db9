"""Row numbers of the n-gram table (model spec, section 10.2). Integers only."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strata.errors import StrataError
from strata.model.config import Ple


def row_numbers(history: Sequence[int], ids: Sequence[int], c: Ple) -> NDArray[np.int64]:
    """Hash every token with the tokens before it.

    Args:
        history: the n-1 ids before the first token, oldest first; EOS where the sequence had not begun.
        ids: T new ids, each below the vocabulary size (so that no product overflows int64).
        c: hash constants.

    Returns:
        int64 [T, rows_per_token]: bigram heads first, then trigram heads and so on.
    """
    tokens = np.asarray([*history, *ids], dtype=np.int64)
    count = len(ids)
    mixed = tokens[c.n - 1 :] * c.multipliers[0]
    dead = np.zeros(count, dtype=bool)  # an EOS cuts the context of later tokens, not its own
    columns = []
    for lag in range(1, c.n):
        earlier = tokens[c.n - 1 - lag : c.n - 1 - lag + count]
        dead |= earlier == c.eos
        mixed = mixed ^ (np.where(dead, c.eos, earlier) * c.multipliers[lag])
        heads = slice((lag - 1) * c.heads, lag * c.heads)
        columns.append(mixed[:, None] % np.asarray(c.sizes[heads]) + np.asarray(c.offsets[heads]))
    return np.concatenate(columns, axis=1)


def check(numbers: NDArray[np.int64], rows: int) -> None:
    """Refuse row numbers outside a table of so many rows, right before they are used (case P08).

    Raises:
        StrataError: with the place and the number.
    """
    bad = (numbers < 0) | (numbers >= rows)
    if bad.any():
        token, place = (int(i) for i in np.argwhere(bad)[0])
        raise StrataError(
            f"row {numbers[token, place]} of the n-gram table was asked for (token {token} of its pass, number {place})"
            f", but it has {rows} rows; the numbers were overwritten or the file's hash constants are wrong"
        )
