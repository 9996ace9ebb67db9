"""Which experts to fetch while a draft is made, for the window that will verify it. Pure arithmetic.

While the draft head works the link is idle: as many experts come in for nothing as fit into the time it takes. Which
of them are worth a slot is a bet on what the drafted rows will visit.
"""

import numpy as np
from numpy.typing import NDArray

LEAST = 0.8
"""Chance below which a fetch is not worth a slot, however idle the link: the idle time is worth more to the adaptive
rule, whose moves pay for many windows (docs/cache.md)."""


def fetchable(drafting: float, link: float, size: int) -> int:
    """Experts that come in while a draft is made.

    Args:
        drafting: seconds until the window begins.
        link: bytes per second.
        size: bytes of an expert.
    """
    return max(0, int(drafting * link / size))


def worth_fetching(
    keys: NDArray[np.int64], chances: NDArray[np.float64], most: int, least: float = LEAST
) -> NDArray[np.int64]:
    """The best bets.

    Args:
        keys: [n], experts that rows of the window may visit, as layer x E + expert; one entry for each row that may.
        chances: [n], how likely each does. A row is computed whether its token turns out right or wrong.
        most: how many to fetch.
        least: chance below which none is fetched.

    Returns:
        [up to most]: each expert once, the most certain first.
    """
    found, where = np.unique(keys, return_inverse=True)
    none = np.ones(len(found))
    np.multiply.at(none, where, 1.0 - chances)
    order = np.argsort(none, kind="stable")[:most]
    return found[order[1.0 - none[order] >= least]]
