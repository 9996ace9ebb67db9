"""Whole arrays between bytes and float32: the checks, and the cutting into pieces that stay in cache."""

import numpy as np

from strata.errors import FormatError
from strata.formats.block import F32, U8, BlockType

_PIECE = 1 << 18  # weights handled at a time


def dequantise(block_type: BlockType, raw: U8) -> F32:
    """Read weights.

    NaN and infinite scales are not an error here; they give NaN and infinite weights, as in any other reader.

    Args:
        block_type: the layout of the bytes.
        raw: ``uint8 [..., row_bytes]``; may be a read-only memory map.

    Returns:
        ``float32 [..., width]``, new memory.

    Raises:
        FormatError: if ``raw`` is not bytes, or its rows are not whole blocks.
    """
    if raw.dtype != np.uint8 or raw.ndim == 0:
        raise FormatError(f"{block_type.name} is read from uint8 [..., bytes of a row], not {_describe(raw)}")
    per_row, rest = divmod(raw.shape[-1], block_type.bytes)
    if rest or not per_row:
        raise FormatError(f"a {block_type.name} row must be a multiple of {block_type.bytes} bytes: {_describe(raw)}")
    blocks = np.ascontiguousarray(raw).reshape(-1, block_type.bytes)
    out = np.empty((len(blocks), block_type.weights), dtype=np.float32)
    step = max(1, _PIECE // block_type.weights)
    with np.errstate(all="ignore"):
        for start in range(0, len(blocks), step):
            out[start : start + step] = block_type.dequantise(blocks[start : start + step])
    return out.reshape(*raw.shape[:-1], per_row * block_type.weights)


def quantise(block_type: BlockType, x: F32) -> U8:
    """Write weights.

    Args:
        block_type: the layout wanted.
        x: ``float32 [..., width]``, finite.

    Returns:
        ``uint8 [..., row_bytes]``.

    Raises:
        FormatError: if the type cannot be written, the width is not whole blocks, or a weight is NaN, infinite or
            beyond what the type's scale can hold.
    """
    if block_type.quantise is None:
        raise FormatError(f"{block_type.name} can be read but not written; choose another type")
    if x.dtype != np.float32 or x.ndim == 0:
        raise FormatError(f"{block_type.name} is written from float32 [..., width], not {_describe(x)}")
    row_bytes = block_type.row_bytes(x.shape[-1])
    blocks = np.ascontiguousarray(x).reshape(-1, block_type.weights)
    out = np.empty((len(blocks), block_type.bytes), dtype=np.uint8)
    step = max(1, _PIECE // block_type.weights)
    for start in range(0, len(blocks), step):
        piece = blocks[start : start + step]
        _check(block_type, piece)
        with np.errstate(over="ignore", under="ignore"):
            out[start : start + step] = block_type.quantise(piece)
    return out.reshape(*x.shape[:-1], row_bytes)


def _check(block_type: BlockType, piece: F32) -> None:
    largest = np.abs(piece).max()  # NaN if there is one
    if not np.isfinite(largest):
        bad = piece[~np.isfinite(piece)]
        raise FormatError(f"weights to write as {block_type.name} must be finite; found {bad[0]}")
    if largest > block_type.largest:
        raise FormatError(f"{block_type.name} holds magnitudes up to {block_type.largest:g}; found {largest:g}")


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype} {list(array.shape)}"
