"""Q2_0: sixteen codes to a word, four at a time through a table of four."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_words, load, load_2, padded
from strata.ops.matvec.instructions import look_up_8
from strata.ops.matvec.tables import Q2_0


@triton.jit
def _half(word):
    first, second = word & 0x33333333, (word >> 2) & 0x33333333
    return (
        look_up_8(first, Q2_0), look_up_8(first >> 16, Q2_0), look_up_8(second, Q2_0), look_up_8(second >> 16, Q2_0)
    )  # fmt: skip


@triton.jit
def q2_0(w, top, first, at, mask, N, B, L: tl.constexpr, SHIFT: tl.constexpr):
    """Words 0-3, words 4-7, (W); W = d, shared by ``2^SHIFT`` blocks."""
    low, high = load_2(as_words(w), top, first, at, mask, N, B, L)
    d = load(as_halves(w + padded(N * B * 8)) + (at >> SHIFT), mask).to(tl.float32)
    return _half(low), _half(high), (d,)
