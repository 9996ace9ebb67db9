"""Q8_0: the words are there; W = d."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_words, load, load_4


@triton.jit
def q8_0(w, row, block, mask, N, B):
    """Words 0-3, words 4-7, (W)."""
    at = row * B + block
    low = load_4(as_words(w) + at * 4, mask)
    high = load_4(as_words(w + N * B * 16) + at * 4, mask)
    return low, high, (load(as_halves(w + N * B * 32) + at, mask).to(tl.float32),)
