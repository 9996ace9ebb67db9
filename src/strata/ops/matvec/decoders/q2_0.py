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
def fetch_q2_0(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr, SHIFT: tl.constexpr):
    """Pairs of bits, and d, which ``2^SHIFT`` blocks share."""
    words = load_2(as_words(w), here, OFF, L, EVEN)
    return words, load(as_halves(w + padded(size * 8)), here, OFF, L, EVEN, SHIFT)


@triton.jit
def q2_0(raw):
    """Words 0-3, words 4-7, (W); W = d."""
    return _half(raw[0][0]), _half(raw[0][1]), (raw[1].to(tl.float32),)
