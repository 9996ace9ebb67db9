"""Q8_0: the words are there; W = d."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_words, load, load_4


@triton.jit
def q8_0(w, top, first, at, mask, N, B, L: tl.constexpr):
    """Words 0-3, words 4-7, (W)."""
    low = load_4(as_words(w), top, first, at, mask, N, B, L)
    high = load_4(as_words(w + N * B * 16), top, first, at, mask, N, B, L)
    return low, high, (load(as_halves(w + N * B * 32) + at, mask).to(tl.float32),)
