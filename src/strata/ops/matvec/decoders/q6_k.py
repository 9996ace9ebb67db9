"""Q6_K: six bits at the top of each byte, so that their sign is the byte's; sums are shifted right by two."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_shorts, as_words, load, load_2, load_4, padded

_TOP = tl.constexpr(-0x3F3F3F40)  # 0xC0C0C0C0


@triton.jit
def _word(nibbles, tops):
    return (nibbles & 0x3C3C3C3C) | (tops & _TOP)


@triton.jit
def q6_k(w, top, first, at, mask, N, B, L: tl.constexpr):
    """4 times words 0-3, 4 times words 4-7, (W, steps of the halves); W = d."""
    a, b, c, d = load_4(as_words(w), top, first, at, mask, N, B, L)
    tops = w + N * B * 16
    g, h = load_2(as_words(tops), top, first, at, mask, N, B, L)
    low = _word(a << 2, g << 6), _word(b << 2, g << 4), _word(c << 2, g << 2), _word(d << 2, g)
    high = _word(a >> 2, h << 6), _word(b >> 2, h << 4), _word(c >> 2, h << 2), _word(d >> 2, h)
    steps = tops + padded(N * B * 8)
    pair = load(as_shorts(steps) + at, mask).to(tl.int32)
    scale = load(as_halves(steps + padded(N * B * 2)) + (at >> 3), mask).to(tl.float32)
    return low, high, (scale, (pair << 24) >> 24, pair >> 8)
