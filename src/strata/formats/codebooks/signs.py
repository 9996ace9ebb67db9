"""Signs of eight weights, kept apart from the codewords, which are all positive.

IQ2_S and IQ3_S store eight bits, a set bit meaning minus. IQ2_XXS, IQ2_XS and IQ3_XXS store seven; the eighth makes the
number of minus signs even.
"""

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32, U8
from strata.formats.fields import lanes, pack_lanes

_SEVEN = np.arange(128, dtype=np.uint8)
_EVEN = _SEVEN | ((np.bitwise_count(_SEVEN) & np.uint8(1)) << np.uint8(7))


def signs(packed: U8) -> F32:
    """``uint8 [...] -> float32 [..., 8]`` of 1 and -1."""
    return np.float32(1) - np.float32(2) * lanes(packed, 1)


def even_signs(seven: NDArray[np.integer]) -> F32:
    """Seven stored bits per eight weights: ``[...] of 0..127 -> float32 [..., 8]`` of 1 and -1."""
    return signs(_EVEN[seven])


def fold(x: F32, *, even: bool) -> tuple[F32, U8]:
    """Part weights into magnitudes and sign bytes.

    With ``even``, a group with an odd number of minus signs must give one up. The smallest magnitude loses least: its
    sign bit is flipped, and its magnitude becomes negative, so that the codeword search knows.

    Args:
        x: ``float32 [..., 8]``.
        even: whether the number of minus signs must be even.

    Returns:
        Magnitudes ``float32 [..., 8]`` and sign bytes ``uint8 [...]``.
    """
    minus = (x < 0).astype(np.uint8)
    magnitudes = np.abs(x)
    if even:
        odd = minus.sum(axis=-1, keepdims=True) % 2 == 1
        smallest = np.arange(8) == magnitudes.argmin(axis=-1)[..., None]
        flip = odd & smallest
        magnitudes = np.where(flip, -magnitudes, magnitudes)
        minus ^= flip
    return magnitudes, pack_lanes(minus, 1)
