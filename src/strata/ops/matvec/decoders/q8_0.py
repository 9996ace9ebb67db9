"""Q8_0: the words are there; W = d."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_words, load, load_4


@triton.jit
def fetch_q8_0(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """First codes, last codes, d."""
    low, high = load_4(as_words(w), here, OFF, L, EVEN), load_4(as_words(w + size * 16), here, OFF, L, EVEN)
    return low, high, load(as_halves(w + size * 32), here, OFF, L, EVEN)


@triton.jit
def q8_0(raw):
    """Words 0-3, words 4-7, (W)."""
    return raw[0], raw[1], (raw[2].to(tl.float32),)
