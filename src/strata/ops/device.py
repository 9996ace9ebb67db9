"""Small pieces that GPU kernels share. Importing this needs Triton; nothing outside kernels' files imports it."""

import triton
import triton.language as tl


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def silu(x):
    """x / (1 + exp(-x))."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def softplus(x):
    """log(1 + exp(x)), and x itself above 20, where float32 sees no difference."""
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def _peaks(x):
    """Largest magnitude of each row, as an integer: floats that are not negative have the order of integers.

    A warp's largest integer is one instruction from sm_80 on.
    """
    return tl.max(x.to(tl.int32, bitcast=True) & 0x7FFFFFFF, 1)


@triton.jit
def _scales(peaks):
    """Of blocks with these peaks: what a code stands for, and its inverse."""
    peak = peaks.to(tl.float32, bitcast=True)
    tiny = peak < 7.888609052210118e-31  # 2^-100
    safe = tl.where(tiny, 1.0, peak)
    limit = tl.full(peak.shape, 127.0, tl.float32)
    return tl.where(tiny, 0.0, tl.math.div_rn(safe, limit)), tl.where(tiny, 0.0, tl.math.div_rn(limit, safe))


@triton.jit
def _codes(x, inverse):
    """Nearest integers of rows, ties to even."""
    return ((x * inverse[:, None] + 12582912.0) - 12582912.0).to(tl.int32)


@triton.jit
def _store_codes(q, codes, row, block, last, B):
    place = tl.arange(0, 32)[None, :]
    at = ((row * 2 + place // 16) * B + block[:, None]) * 16 + place % 16
    tl.store(q + at, codes.to(tl.int8), mask=(block < last)[:, None])


@triton.jit
def _each(x, BLOCKS: tl.constexpr):
    """A block's number for each of its 32."""
    return tl.reshape(tl.broadcast_to(x[:, None], (BLOCKS, 32)), (32 * BLOCKS,))


@triton.jit
def store_quantised(q, s, z, row, x, first, last, B, BLOCKS: tl.constexpr, SINGLE: tl.constexpr = False):
    """Quantise part of a row and store it as `strata.ops.matvec.triton.Activations` holds it.

    Args:
        q: int8 [T, 2, B, 16]; s, z: float32 [T, B].
        row: of the T.
        x: float32 [32 BLOCKS], of blocks ``first`` to ``last`` - 1; what is behind them is not stored.
        first, last: blocks of the row.
        B: blocks of a row.
        SINGLE: the program has a thread for each number, so a block is a warp. Then scales are stored from where they
            are, by one thread of a warp; else they pass through shared memory, and everyone waits for it.
    """
    x = tl.reshape(x, (BLOCKS, 32))
    scale, inverse = _scales(_peaks(x))
    codes = _codes(x, inverse)
    block = first + tl.arange(0, BLOCKS)
    _store_codes(q, codes, row, block, last, B)
    total = scale * tl.sum(codes, 1).to(tl.float32)
    if SINGLE:
        i = tl.arange(0, 32 * BLOCKS)
        mine = first + i // 32
        one = (i % 32 == 0) & (mine < last)
        tl.store(s + row * B + mine, _each(scale, BLOCKS), mask=one)
        tl.store(z + row * B + mine, _each(total, BLOCKS), mask=one)
    else:
        tl.store(s + row * B + block, scale, mask=block < last)
        tl.store(z + row * B + block, total, mask=block < last)


CELL_BLOCK = tl.constexpr(36)
"""Bytes of 32 numbers of a head as `strata.model.kv.q8` stores them: a float32 scale, then the codes."""


@triton.jit
def store_cell(to, x, BLOCKS: tl.constexpr):
    """Store a head in eight bits, with the bytes of `strata.model.kv.q8.Q8.encode` but for those of a NaN.

    Args:
        to: uint8, where the head begins; a multiple of four.
        x: float32 [32 BLOCKS].
    """
    x = tl.reshape(x, (BLOCKS, 32))
    scale, inverse = _scales(_peaks(x))
    scaled = x * inverse[:, None]
    scaled = tl.where(tl.abs(scaled) <= 128.0, scaled, 0.0)  # what is no number has the scale to say so
    codes = ((scaled + 12582912.0) - 12582912.0).to(tl.int32).to(tl.int8)
    block, place = tl.arange(0, BLOCKS), tl.arange(0, 32)
    tl.store((to + block * CELL_BLOCK).to(tl.pointer_type(tl.float32)), scale)
    tl.store(to + (block * CELL_BLOCK + 4)[:, None] + place[None, :], codes.to(tl.uint8, bitcast=True))


@triton.jit
def load_block(cells, at, block, inside):
    """One block of heads: codes int8 [n, 32], and what they stand for, float32 [n]; zeros where nothing is read.

    Args:
        cells: uint8, as `store_cell` leaves them.
        at: int64 [n], where each head begins.
        block: number of the block, the same of each.
        inside: [n].
    """
    start = cells + (at + block * CELL_BLOCK)
    scale = tl.load(start.to(tl.pointer_type(tl.float32)), mask=inside, other=0.0)
    codes = tl.load(start[:, None] + 4 + tl.arange(0, 32)[None, :], mask=inside[:, None], other=0)
    return codes.to(tl.int8, bitcast=True), scale


@triton.jit
def load_heads(cells, at, inside, N: tl.constexpr, HD: tl.constexpr):
    """Whole heads as they read back: float32 [N, HD], each ``fl(code * scale)``. Arguments as for `load_block`."""
    BLOCKS: tl.constexpr = HD // 32
    start = cells + at[:, None] + (tl.arange(0, BLOCKS) * CELL_BLOCK)[None, :]
    scale = tl.load(start.to(tl.pointer_type(tl.float32)), mask=inside[:, None], other=0.0)
    place = 4 + tl.arange(0, 32)
    codes = tl.load(start[:, :, None] + place[None, None, :], mask=inside[:, None, None], other=0)
    return tl.reshape(codes.to(tl.int8, bitcast=True).to(tl.float32) * scale[:, :, None], (N, HD))
