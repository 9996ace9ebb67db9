"""Rows of a quantised table, dequantised on a GPU.

The table may lie in device memory or in pinned host memory; a row of the n-gram table is 90 bytes there, of the token
embedding 1.4 KB, so only latency counts. Values are those of `strata.formats.dequantise` to the byte.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait
from strata.ops.matvec.decoders import decode, form


@triton.jit
def _weights(KIND: tl.constexpr, word, byte: tl.constexpr, second: tl.constexpr, scales):
    """One weight of each block from a word of four."""
    code = (word << (24 - 8 * byte)) >> 24
    FORM: tl.constexpr = form(KIND)
    if second and (KIND == "Q4_K" or KIND == "Q4_1"):
        code = (code & 255) >> 4
    if KIND == "Q6_K":
        code = code >> 2
    if FORM == "halves":
        value = scales[1 if second else 0] * code.to(tl.float32)
    elif FORM == "steps":
        value = scales[0] * (code * scales[2 if second else 1]).to(tl.float32)
    elif FORM == "minimum":
        value = scales[0] * code.to(tl.float32) + scales[1]
    else:
        value = scales[0] * code.to(tl.float32)
    return value


@triton.jit(do_not_specialize=["N", "B"])
def gather(w, table, ids, out, N, B, KIND: tl.constexpr, BLOCKS: tl.constexpr, PDL: tl.constexpr):
    """``out[t] = row ids[t] of w``. Grid: (T, ceil(B / BLOCKS)).

    Args:
        w: planes of ``[N, 32 B]``.
        table: the type's grid, or any pointer.
        ids: int32 or int64 [T].
        out: float32 [T, 32 B], out.
    """
    t = tl.program_id(0)
    wide = N.to(tl.int64)  # a table of 320 million rows has more blocks than 32 bits count
    first = tl.program_id(1) * BLOCKS
    block = first + tl.arange(0, BLOCKS)
    mask = block < B
    release(PDL)
    wait(PDL)
    row = tl.load(ids + t).to(tl.int64)
    low, high, scales = decode(KIND, w, table, row, first, row * B + block, mask, wide, B, BLOCKS)
    for i in tl.static_range(4):
        for j in tl.static_range(4):
            at = out + t * 32 * B + block * 32 + 4 * i + j
            tl.store(at, _weights(KIND, low[i], j, False, scales), mask=mask)
            tl.store(at + 16, _weights(KIND, high[i], j, True, scales), mask=mask)
