"""Finding the scale of a block: the arithmetic that several quantisers share."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32, U8


def inverse(d: F32) -> F32:
    """``1 / d``, and 0 where that is not finite: d is zero, or so small that float16 stores zero anyway."""
    with np.errstate(divide="ignore", over="ignore"):
        inv = np.float32(1) / d
    return np.where(np.isfinite(inv), inv, np.float32(0))


def peak(x: F32) -> F32:
    """The value of largest magnitude along the last axis, with its sign; the first one if several tie. ``[..., 1]``."""
    at = np.abs(x).argmax(axis=-1)[..., None]
    value: F32 = np.take_along_axis(x, at, axis=-1)
    return value


def round_half_away(x: F32) -> F32:
    """Nearest integer, halves away from zero (C's roundf); adding 0.5 first would round 0.49999997 up."""
    magnitude = np.abs(x)
    whole = np.floor(magnitude)
    rounded: F32 = np.copysign(whole + (magnitude - whole >= np.float32(0.5)), x)
    return rounded


def dot(a: F32, b: F32) -> F32:
    """Sum of products along the last axis, kept as an axis of one. ``[..., 1]``."""
    total: F32 = np.einsum("...i,...i->...", a, b)[..., None]
    return total


def ratio(a: F32, b: F32) -> F32:
    """``a / b``, and 0 where b is not positive."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def fit_scale(x: F32, factors: Iterable[float], encode: Callable[[F32], F32]) -> F32:
    """The scale d, among those tried, for which ``d * encode(x / d)`` is nearest to x.

    Every group is first divided by its largest magnitude, then multiplied by each factor in turn; ``encode`` maps
    the result to the values the type can store. For the codes u found so, the best scale is the least-squares one,
    ``sum(x u) / sum(u u)``, and the error left falls with ``sum(x u)^2 / sum(u u)``.

    Args:
        x: ``float32 [..., k]``, finite.
        factors: in units of the type's codes per largest magnitude; a negative one tries the mirrored block.
        encode: ``float32 [..., k] -> float32 [..., k]``, the nearest storable values.

    Returns:
        ``float32 [..., 1]``, zero for a group of zeros. Negative where the mirrored block fits better.
    """
    largest = np.abs(x).max(axis=-1, keepdims=True)
    unit = ratio(x, np.broadcast_to(largest, x.shape))
    best = np.zeros_like(largest)
    scale = np.zeros_like(largest)
    for factor in factors:
        u = encode(unit * np.float32(factor))
        along, square = dot(unit, u), dot(u, u)
        fitted = ratio(along, square)
        gain = along * fitted
        better = gain > best
        best = np.where(better, gain, best)
        scale = np.where(better, fitted, scale)
    fitted_scale: F32 = scale * largest
    return fitted_scale


def nearest_blocks(x: F32, options: Sequence[U8], dequantise: Callable[[U8], F32]) -> U8:
    """Of several encodings of the same blocks, each block's own best by squared error; the earlier one if equal.

    Args:
        x: ``float32 [n, weights]``.
        options: encodings, each ``uint8 [n, bytes]``.
        dequantise: the type's reader.
    """
    chosen = options[0]
    error = _squared_error(x, chosen, dequantise)
    for option in options[1:]:
        other = _squared_error(x, option, dequantise)
        chosen = np.where(other < error, option, chosen)
        error = np.minimum(error, other)
    return chosen


def _squared_error(x: F32, blocks: U8, dequantise: Callable[[U8], F32]) -> NDArray[np.float64]:
    difference = (x - dequantise(blocks)).astype(np.float64)  # squares of tiny weights would underflow in float32
    total: NDArray[np.float64] = np.einsum("ij,ij->i", difference, difference)[:, None]
    return total
