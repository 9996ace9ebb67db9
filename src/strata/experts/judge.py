"""The judge: docs/numerics.md, section "Quantised products", in NumPy, one ufunc per rounding.

Every compiled kernel, on whatever processor, has to give these bytes. Nothing here is fast, and nothing here shares
code with the kernels.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.experts.codes import Codes, read
from strata.formats import BlockType
from strata.formats.block import F32, U8

I8 = NDArray[np.int8]

_MAGIC = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to a whole number, ties to even
_SMALLEST = np.float32(2.0**-100)  # of a block's peak; below it 127 / peak could overflow
_LANES = 16


@dataclass(frozen=True, slots=True)
class Matrix:
    """A quantised matrix as it is stored.

    Attributes:
        type: of its blocks.
        raw: ``uint8 [N, row_bytes]``.
        scale: the tensor's own scale (NVFP4 files have one per expert); multiplies every output.
    """

    type: BlockType
    raw: U8
    scale: np.float32 | None = None


def rint(v: F32) -> F32:
    """Nearest whole number, ties to even, for ``|v| < 2^22``."""
    return (v + _MAGIC) - _MAGIC


def quantise_rows(x: F32) -> tuple[I8, F32]:
    """Activations to int8 with a scale per 32: ``x ~ q * s``.

    Args:
        x: ``float32 [T, K]``, finite; K a multiple of 32.

    Returns:
        ``q int8 [T, K]`` in -127..127 and ``s float32 [T, K / 32]``. A block whose peak is below 2^-100 is zero.
    """
    blocks = x.reshape(len(x), -1, 32)
    peak = np.abs(blocks).max(axis=-1, keepdims=True)
    tiny = peak < _SMALLEST
    safe = np.where(tiny, np.float32(1), peak)
    s = np.where(tiny, np.float32(0), safe / np.float32(127))
    inverse = np.where(tiny, np.float32(0), np.float32(127) / safe)
    q = rint(blocks * inverse).astype(np.int8)
    return q.reshape(x.shape), s[..., 0]


def tree(parts: NDArray[Any]) -> NDArray[Any]:
    """Sum over the last axis in 16 lanes and a halving tree, in the precision given: ``[..., n] -> [...]``."""
    missing = -parts.shape[-1] % _LANES
    padded = np.concatenate([parts, np.zeros((*parts.shape[:-1], missing), dtype=parts.dtype)], axis=-1)
    lanes = np.zeros((*parts.shape[:-1], _LANES), dtype=parts.dtype)
    for start in range(0, padded.shape[-1], _LANES):
        lanes = lanes + padded[..., start : start + _LANES]
    for width in (8, 4, 2, 1):
        lanes = lanes[..., :width] + lanes[..., width:]
    return lanes[..., 0]


def contributions(codes: Codes, q: I8, s: F32) -> F32:
    """What every block of 32 adds to every output: ``float32 [T, N, K / 32]``."""
    halves = q.reshape(len(q), -1, 2, 16).astype(np.int32)
    w = codes.w.reshape(*codes.w.shape[:2], 2, 16).astype(np.int32)
    dots = np.einsum("nbhk,tbhk->tnbh", w, halves)
    if codes.step is not None:
        dots = dots * codes.step
    if codes.unit.shape[-1] == 1:
        dots = dots.sum(axis=-1, keepdims=True)
    scale = codes.unit * s[:, None, :, None]
    with np.errstate(over="ignore", invalid="ignore"):
        terms = scale * dots.astype(np.float32)
        parts: F32 = terms[..., 0] if terms.shape[-1] == 1 else terms[..., 0] + terms[..., 1]
        if codes.minimum is not None:
            z = s * halves.sum(axis=(-1, -2)).astype(np.float32)
            parts = parts + codes.minimum * z[:, None, :]
    return parts


def product(block_type: BlockType, raw: U8, q: I8, s: F32) -> F32:
    """Matrix times quantised activations.

    Args:
        block_type: of the matrix.
        raw: ``uint8 [N, row_bytes]``.
        q: ``int8 [T, K]``.
        s: ``float32 [T, K / 32]``.

    Returns:
        ``float32 [T, N]``.

    Raises:
        FormatError: for a type without an order of operations, or rows that are not whole blocks.
    """
    return tree(contributions(read(block_type, raw), q, s))


def matrix_product(matrix: Matrix, q: I8, s: F32) -> F32:
    """As `product`, with the tensor's own scale applied to the finished sums."""
    y = product(matrix.type, matrix.raw, q, s)
    return y if matrix.scale is None else y * matrix.scale


def float_product(w: F32, x: F32) -> F32:
    """Float matrix times float activations: ``[N, K], [T, K] -> [T, N]``.

    The same tree over single products, in float64, where each product is exact; rounded once at the end.
    """
    wide = w.astype(np.float64)
    return np.stack([tree(wide * row) for row in x.astype(np.float64)]).astype(np.float32)


_EXP_TERMS = tuple(
    np.float32(c) for c in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
)


def exp(x: F32) -> F32:
    """The exponential, within 0.9903 ulp on [-87, 88], saturating outside."""
    x = np.minimum(np.maximum(x, np.float32(-87)), np.float32(88))
    n = rint(x * np.float32(1.44269504088896341))
    r = (x - n * np.float32(0.693359375)) - n * np.float32(-2.12194440e-4)
    p = np.full_like(x, np.float32(1.9875691500e-4))
    for c in _EXP_TERMS:
        p = p * r + c
    y = (p * (r * r) + r) + np.float32(1)
    return y * ((n.astype(np.int32) + 127) << 23).view(np.float32)


def silu(g: F32) -> F32:
    """``g / (1 + exp(-g))``."""
    return g / (np.float32(1) + exp(-g))


def expert(gate: Matrix, up: Matrix, down: Matrix, q: I8, s: F32) -> F32:
    """One expert's rows, without any router weight: ``float32 [T, H]``.

    Args:
        gate: ``[I, H]``.
        up: ``[I, H]``.
        down: ``[H, I]``.
        q: quantised activations, ``int8 [T, H]``.
        s: their scales, ``float32 [T, H / 32]``.
    """
    h = silu(matrix_product(gate, q, s)) * matrix_product(up, q, s)
    return matrix_product(down, *quantise_rows(h))


def combine(rows: F32, weights: F32) -> F32:
    """Weighted sum of experts' rows in the order given.

    Args:
        rows: ``float32 [T, k, H]``, in the router's order, the shared expert (if any) last.
        weights: ``float32 [T, k]``.

    Returns:
        ``float32 [T, H]``.
    """
    out = np.zeros((len(rows), rows.shape[2]), dtype=np.float32)
    for j in range(rows.shape[1]):
        out = out + weights[:, j, None] * rows[:, j]
    return out
