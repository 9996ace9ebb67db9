"""Scores of blocks to choose from, and what is to be chosen."""

import numpy as np

from strata.ops.qsa import choose

BINS = int(choose.BINS.value)


def largest(values: np.ndarray, budget: int) -> np.ndarray:
    """The numbers of the largest values, of equal ones the first, in rising order."""
    return np.sort(np.argsort(-values.astype(np.float64), kind="stable")[:budget])


def peaks_of(values: np.ndarray, tile: int) -> np.ndarray:
    """The largest value of each `tile`."""
    return np.pad(values, (0, -len(values) % tile)).reshape(-1, tile).max(1)


def scores_of(kind: str, count: int) -> np.ndarray:
    random = np.random.default_rng([*kind.encode(), count])
    return {
        "ties": random.integers(0, 4, count),
        "zeros": np.zeros(count),
        "mostly zeros": np.maximum(random.standard_normal(count) - 1.5, 0),
        "random": np.abs(random.standard_normal(count)) * 1e-3,
        "all equal but one": np.where(np.arange(count) == count // 2, 2, 1),
        "almost equal": 10 + random.standard_normal(count) * 1e-5,
        "far apart": np.exp(random.standard_normal(count) * 15),
        "falling": count - np.arange(count),
        "of one place": np.where(np.abs(np.arange(count) - count // 2) < 9, 100, 1) + random.random(count),
        "infinite": np.where(np.arange(count) % 11 == 0, np.inf, random.random(count)),
    }[kind].astype(np.float32)


KINDS = ["ties", "zeros", "mostly zeros", "random", "all equal but one", "almost equal", "far apart", "falling",
         "of one place", "infinite"]  # fmt: skip


def counted_by_bins(values: np.ndarray) -> np.ndarray:
    """How many values lie between powers of two from 2^-6 to 2^10, in 128 equal steps each; others in the outermost."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.floor(np.log2(values, dtype=np.float64))
        step = (power + 6) * 128 + np.floor((values / 2.0**power - 1) * 128)
    place = np.where(values < 2.0**-6, 0, np.where(values >= 2.0**10, BINS - 1, step))
    return np.bincount(place.astype(np.int64), minlength=BINS).astype(np.int32)
