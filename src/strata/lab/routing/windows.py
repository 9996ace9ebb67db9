"""What a window visits: each expert of each layer once, with the number of rows that want it."""

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from strata.lab.routing.generator import Rows


def visits(rows: Rows, experts: int) -> NDArray[np.int32]:
    """int32 [n, 3]: layer, expert and number of rows, by layer and expert.

    Args:
        rows: [T, L, topk], the rows of one window.
        experts: E.
    """
    layers = rows.shape[1]
    keys = (rows + np.arange(layers, dtype=np.int32)[:, None] * experts).ravel()
    counts = np.bincount(keys, minlength=layers * experts)
    found = np.flatnonzero(counts)
    return np.stack([found // experts, found % experts, counts[found]], 1).astype(np.int32)


def windows(pieces: Iterable[tuple[int, Rows]], rows: int, experts: int) -> Iterator[NDArray[np.int32]]:
    """Visits of windows of `rows` rows of one conversation each; what is left of a conversation is a smaller window."""
    held: list[Rows] = []
    whose = -1
    for number, piece in pieces:
        if number != whose and held:
            yield visits(np.concatenate(held), experts)
            held = []
        whose = number
        joined = np.concatenate([*held, piece])
        whole = len(joined) // rows * rows
        for i in range(0, whole, rows):
            yield visits(joined[i : i + rows], experts)
        held = [joined[whole:]] if whole < len(joined) else []
    if held:
        yield visits(np.concatenate(held), experts)
