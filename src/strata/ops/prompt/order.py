"""The order in which the experts' products take the numbers of a row: that of `strata.ops.prompt.decode.fragment`."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["K", "low", "high"])
def order(x, bounds, out, K, low, high, SPAN: tl.constexpr, ROWS: tl.constexpr):
    """Rows with the numbers of every four blocks of 32 exchanged. Grid: (most rows / ROWS, cdiv(K, 128)).

    Args:
        x: float16 [T, K].
        bounds: int32: its first is T; with SPAN, rows from number ``bounds[low]`` on and before ``bounds[high]``.
        out: float16 [T, a multiple of 128], out; zero behind K.
    """
    begin, end = 0, 0
    if SPAN:
        begin, end = tl.load(bounds + low), tl.load(bounds + high)
    else:
        end = tl.load(bounds)
    row, c = begin + tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None], tl.arange(0, 128)[None, :]
    first = tl.program_id(1) * 128
    source = first + c // 2 % 4 * 32 + c // 16 * 4 + c // 8 % 2 * 2 + c % 2
    there = row < end
    value = tl.load(x + row * K + source, mask=there & (source < K), other=0.0)
    tl.store(out + row * (tl.num_programs(1) * 128) + first + c, value, mask=there)
