"""The residual streams on a GPU: write-back, norm and quantisation, then the gated mean.

Around two matrix products (`down` and `up`) a read needs four launches of these. All are bound by latency, not by
bytes: a row's four streams are 40 KB. So they are cut into many small programs, most of one warp, and what a sum over
a stream would have to wait for passes through memory to the next launch: half a microsecond, and less than one program
takes for a stream alone. What a block leaves to add is read in the form in which it was left, so experts' rows are
weighed and added here and not by a launch of their own. The four rows of `inject`, which only the write behind the
block needs, are multiplied by further programs of `low`, beside it.

Kernels that quantise have a thread for each number of a tensor, a warp for each block.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.device import sigmoid, silu, store_quantised

PART = 1024
"""Numbers of the normalised streams that a program of `low` multiplies by `inject`."""

PIECE = 128
"""Numbers of a stream that a program of `write`, `norm` and `mix` has."""


@triton.jit
def _strength(shares, row, stream, S: tl.constexpr, PARTS: tl.constexpr):
    """2 sigmoid(inject / S) from the parts of the raw strength, added in order."""
    at = shares + (row * S + stream) * PARTS
    total = tl.load(at)
    for part in tl.static_range(1, PARTS):
        total += tl.load(at + part)
    return 2.0 * sigmoid(total / S)


@triton.jit
def _factors(weights, shared_weights, row, TOPK: tl.constexpr):
    """What a row's experts are weighed by, the shared one last."""
    found = ()
    if TOPK:
        for j in tl.static_range(TOPK):
            found = found + (tl.load(weights + row * TOPK + j),)
        found = found + (tl.load(shared_weights + row),)
    return found


@triton.jit
def _due(rows, shared, factors, row, h, inside, H: tl.constexpr, TOPK: tl.constexpr):
    """What a block left to add to a row: its output, or its experts' rows weighed in the router's order.

    The order is that of `strata.ops.experts.kernels.combine_kernel`.
    """
    if TOPK == 0:
        total = tl.load(rows + row * H + h, mask=inside, other=0.0)
    else:
        total = tl.zeros(h.shape, tl.float32)
        for j in tl.static_range(TOPK):
            pair = row * TOPK + j
            total = total + factors[j] * tl.load(rows + pair * H + h, mask=inside, other=0.0)
        total = total + factors[TOPK] * tl.load(shared + row * H + h, mask=inside, other=0.0)
    return total


@triton.jit
def write(
    residual, rows, weights, shared, shared_weights, shares, squares,
    H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, PARTS: tl.constexpr, WRITE: tl.constexpr,
    TOPK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Add what is due to a stream, and sum up its squares piece by piece. Grid: (ceil(H / BLOCK), S, T).

    Args:
        residual: float32 [T, S*H], changed in place.
        rows: float32 [T, H], the block's output, or with TOPK float32 [T * TOPK, H], rows of its experts.
        weights: float32 [T, TOPK]; unused without TOPK, like the next two.
        shared: float32 [T, H], rows of the shared expert.
        shared_weights: float32 [T].
        shares: float32 [T, S, PARTS], parts of the raw strengths from the read before the block.
        squares: float32 [T, S, ceil(H / BLOCK)], out.
        BLOCK: power of two.
        WRITE: something is due; else everything from `rows` to `shares` is unused.
    """
    release(PDL)
    stream, row = tl.program_id(1), tl.program_id(2)
    h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    at = residual + row * S * H + stream * H + h
    wait(PDL)
    x = tl.load(at, mask=inside, other=0.0)
    if WRITE:
        factors = _factors(weights, shared_weights, row, TOPK)
        out = _due(rows, shared, factors, row, h, inside, H, TOPK)
        x += _strength(shares, row, stream, S, PARTS) * out
        tl.store(at, x, mask=inside)
    tl.store(squares + (row * S + stream) * tl.num_programs(0) + tl.program_id(0), tl.sum(x * x, 0))


@triton.jit
def norm(
    residual, squares, scales, eps, xn, q, s, sums,
    H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, COUNT: tl.constexpr, ROOM: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """Streams normalised, and quantised. Grid: (ceil(H / BLOCK), S, T).

    Args:
        residual: float32 [T, S*H].
        squares: float32 [T, S, COUNT], sums over pieces of each stream.
        scales: float32 [S*H], of the norm.
        eps: of the norm.
        xn: float32 [T, S*H], out.
        q: int8 [T, 2, S*H/32, 16], out.
        s, sums: float32 [T, S*H/32], out.
        BLOCK: power of two, 32 for each warp.
        ROOM: power of two, at least COUNT.
    """
    release(PDL)
    stream, row = tl.program_id(1), tl.program_id(2)
    h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    factor = tl.load(scales + stream * H + h, mask=inside, other=0.0)
    piece = tl.arange(0, ROOM)
    at = row * S * H + stream * H + h
    wait(PDL)
    parts = tl.load(squares + (row * S + stream) * COUNT + piece, mask=piece < COUNT, other=0.0)
    x = tl.load(residual + at, mask=inside, other=0.0)
    y = x * (1.0 / tl.sqrt_rn(tl.sum(parts, 0) / H + eps)) * factor
    tl.store(xn + at, y, mask=inside)
    first = stream * (H // 32) + tl.program_id(0) * (BLOCK // 32)
    store_quantised(q, s, sums, row, y, first, (stream + 1) * (H // 32), S * H // 32, BLOCK // 32, True)


@triton.jit
def low(
    y, x, q, s, sums, inject, xn, shares,
    R: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, PART: tl.constexpr,
    PARTS: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """silu(y / S) of the low-rank rows, and the same quantised. Grid: (1 + PARTS, T), or (1, T) without `inject`.

    Args:
        y: float32 [T, R].
        x: float32 [T, R], out.
        q: int8 [T, 2, R/32, 16], out.
        s, sums: float32 [T, R/32], out.
        inject: float32 [S, WIDTH].
        xn: float32 [T, WIDTH].
        shares: float32 [T, S, PARTS], out: ``inject @ xn`` over PART numbers each, which are parts of raw strengths.
        BLOCK: power of two, at least R; 32 for each warp.
    """
    release(PDL)
    row = tl.program_id(1)
    if tl.program_id(0) == 0:
        wait(PDL)
        r = tl.arange(0, BLOCK)
        inside = r < R
        value = silu(tl.load(y + row * R + r, mask=inside, other=0.0) / S)
        tl.store(x + row * R + r, value, mask=inside)
        store_quantised(q, s, sums, row, value, 0, R // 32, R // 32, BLOCK // 32, True)
    else:
        part = tl.program_id(0) - 1
        k, target = part * PART + tl.arange(0, PART), tl.arange(0, S)
        weights = tl.load(inject + target[:, None] * WIDTH + k[None, :], mask=(k < WIDTH)[None, :], other=0.0)
        wait(PDL)
        numbers = tl.load(xn + row * WIDTH + k, mask=k < WIDTH, other=0.0)
        tl.store(shares + (row * S + target) * PARTS + part, tl.sum(weights * numbers[None, :], 1))


@triton.jit
def mix(gates, xn, m, q, s, sums, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """The mean of the gated streams, and its quantised form. Grid: (ceil(H / BLOCK), T).

    Args:
        gates: float32 [T, S*H], raw.
        xn: float32 [T, S*H].
        m: float32 [T, H], out.
        q: int8 [T, 2, H/32, 16], out.
        s, sums: float32 [T, H/32], out.
        BLOCK: power of two, 32 for each warp.
    """
    release(PDL)
    row = tl.program_id(1)
    h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    wait(PDL)
    total = tl.zeros([BLOCK], tl.float32)
    for stream in tl.static_range(S):
        at = row * S * H + stream * H + h
        gate = sigmoid(tl.load(gates + at, mask=inside, other=0.0))
        total += gate * tl.load(xn + at, mask=inside, other=0.0)
    mean = total / S
    tl.store(m + row * H + h, mean, mask=inside)
    store_quantised(q, s, sums, row, mean, tl.program_id(0) * (BLOCK // 32), H // 32, H // 32, BLOCK // 32, True)


@triton.jit
def spread(x, residual, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, PDL: tl.constexpr):
    """S copies of rows ``x`` float32 [T, H] side by side: ``residual`` float32 [T, S*H]. Grid: (ceil(H / BLOCK), T)."""
    release(PDL)
    row = tl.program_id(1)
    h = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = h < H
    wait(PDL)
    value = tl.load(x + row * H + h, mask=inside, other=0.0)
    for stream in tl.static_range(S):
        tl.store(residual + row * S * H + stream * H + h, value, mask=inside)
