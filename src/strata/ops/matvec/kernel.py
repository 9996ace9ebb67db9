"""The kernel of a quantised matrix times 1 to 8 rows of activations; see `strata.ops.matvec.triton`."""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.matvec.order import row_sums


@triton.jit
def store_product(w, table, x, x_rows, scale, out, first, N, KIND: tl.constexpr, T: tl.constexpr, RR: tl.constexpr,
                  H: tl.constexpr, L: tl.constexpr, B: tl.constexpr, D: tl.constexpr, SCALED: tl.constexpr,
                  PDL: tl.constexpr):  # fmt: skip
    """``out[t, n] = row n of w times row t of x`` for RR * H rows of w from ``first`` on, and T rows of x."""
    sums = row_sums(KIND, None, T, RR, H, L, D, PDL, (w,), (table,), x, x_rows, first, N, B)
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            y = sums[t * RR + r]
            if SCALED:
                y = y * tl.load(scale)
            row = first + r * H + tl.arange(0, H)
            tl.store(out + x_rows[t] * N + row, y, mask=row < N)


@triton.jit
def first_rows(T: tl.constexpr):
    """Rows 0 to T - 1."""
    rows = ()
    for t in tl.static_range(T):
        rows = rows + (t,)
    return rows


@triton.jit(do_not_specialize=["N", "ROWS"])
def product_kernel(w, table, q, s, z, scale, out, N, ROWS, KIND: tl.constexpr, T: tl.constexpr, GROUPED: tl.constexpr,
                   RR: tl.constexpr, H: tl.constexpr, L: tl.constexpr, B: tl.constexpr, D: tl.constexpr,
                   SCALED: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """A whole matrix; a program takes RR * H rows of it and T of the ``ROWS`` rows of activations.

    That is all of them, or with ``GROUPED`` those that the second axis of the grid says; rows that are not there are
    the last one, with the same bytes.
    """
    release(PDL)
    first = tl.program_id(0) * (RR * H)
    x_rows = first_rows(T)
    if GROUPED:
        x_rows = ()
        for t in tl.static_range(T):
            x_rows = x_rows + (tl.minimum(tl.program_id(1) * T + t, ROWS - 1),)
    store_product(w, table, (q, s, z), x_rows, scale, out, first, N, KIND, T, RR, H, L, B, D, SCALED, PDL)


@triton.jit
def quantise_kernel(x, q, s, z, B, BLOCKS: tl.constexpr, PDL: tl.constexpr):
    """One row's ``BLOCKS`` blocks of 32 to int8 codes, scales, and scales times the codes' sum.

    Codes go out as ``[rows, 2, B, 16]``: first halves of all blocks, then second halves, so that the threads of a
    product, which take a block each, load neighbouring 16 bytes.
    """
    release(PDL)
    row = tl.program_id(1).to(tl.int64)
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < B
    at = (row * B + block)[:, None] * 32 + tl.arange(0, 32)[None, :]
    wait(PDL)
    values = tl.load(x + at, mask=inside[:, None], other=0.0)
    peak = tl.max(tl.abs(values), 1)
    tiny = peak < 7.888609052210118e-31  # 2^-100: above it 127 / peak is finite
    safe = tl.where(tiny, 1.0, peak)
    scale = tl.where(tiny, 0.0, tl.math.div_rn(safe, tl.full((BLOCKS,), 127.0, tl.float32)))
    inverse = tl.where(tiny, 0.0, tl.math.div_rn(tl.full((BLOCKS,), 127.0, tl.float32), safe))
    codes = ((values * inverse[:, None] + 12582912.0) - 12582912.0).to(tl.int32)  # rint, ties to even
    i = tl.arange(0, 32)[None, :]
    to = (2 * row + i // 16) * (B * 16) + block[:, None] * 16 + i % 16
    tl.store(q + to, codes.to(tl.int8), mask=inside[:, None])
    tl.store(s + row * B + block, scale, mask=inside)
    tl.store(z + row * B + block, scale * tl.sum(codes, 1).to(tl.float32), mask=inside)
