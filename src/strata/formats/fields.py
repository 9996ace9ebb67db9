"""Fields of a block: float16 scales and codes packed in bytes.

A block type packs several small codes in a byte in one of two orders. In *planes* the lowest bits of all k bytes
come first, then the next bits of all k bytes (Q4_0, the K types). In *lanes* the codes of one byte are neighbours
(Q2_0, sign bits). Both are little-endian inside the byte.
"""

import numpy as np
from numpy.typing import NDArray

from strata.formats.block import F32, U8


def half(blocks: U8, at: int) -> F32:
    """The float16 field at byte ``at`` of every block, as float32 ``[n, 1]``; NaN and infinities pass through."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def half_bytes(values: F32) -> U8:
    """``float32 [n, 1] -> uint8 [n, 2]``, rounded to the nearest float16 (ties to even)."""
    return np.ascontiguousarray(values).astype("<f2").view(np.uint8)


def as_half(values: F32) -> F32:
    """The values a float16 field can hold that are nearest to ``values``; what a reader will see."""
    return values.astype(np.float16).astype(np.float32)


def words(blocks: U8, at: int, count: int) -> NDArray[np.uint16]:
    """``count`` little-endian 16-bit words from byte ``at`` of every block: ``uint16 [n, count]``."""
    return blocks[:, at : at + 2 * count].view("<u2")


def long_words(blocks: U8, at: int, count: int) -> NDArray[np.uint32]:
    """``count`` little-endian 32-bit words from byte ``at`` of every block: ``uint32 [n, count]``."""
    return blocks[:, at : at + 4 * count].view("<u4")


def _shifts(bits: int) -> U8:
    return np.arange(0, 8, bits, dtype=np.uint8)


def planes(packed: U8, bits: int) -> U8:
    """``uint8 [..., k] -> codes [..., 8 // bits, k]``, lowest bits first."""
    return (packed[..., None, :] >> _shifts(bits)[:, None]) & np.uint8((1 << bits) - 1)


def lanes(packed: U8, bits: int) -> U8:
    """``uint8 [..., k] -> codes [..., k, 8 // bits]``, lowest bits first."""
    return (packed[..., None] >> _shifts(bits)) & np.uint8((1 << bits) - 1)


def pack_planes(codes: U8, bits: int) -> U8:
    """The inverse of `planes`: ``codes [..., 8 // bits, k] -> uint8 [..., k]``."""
    packed: U8 = np.bitwise_or.reduce(codes << _shifts(bits)[:, None], axis=-2)
    return packed


def pack_lanes(codes: U8, bits: int) -> U8:
    """The inverse of `lanes`: ``codes [..., k, 8 // bits] -> uint8 [..., k]``."""
    packed: U8 = np.bitwise_or.reduce(codes << _shifts(bits), axis=-1)
    return packed
