"""Types with a minimum: Q4_1, Q5_1, Q4_K, Q5_K.

Four-bit codes need one instruction a word: the high nibbles stay where they are, sixteen times too large, and
their sum is shifted instead. Codes of five bits take four.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_shorts, as_words, high_half, load, load_4, low_half, padded


@triton.jit
def _four_bits(w, top, first, at, mask, N, B, L: tl.constexpr):
    a, b, c, d = load_4(as_words(w), top, first, at, mask, N, B, L)
    low, high = 0x0F0F0F0F, -0x0F0F0F10  # the latter is 0xF0F0F0F0
    return (a & low, b & low, c & low, d & low), (a & high, b & high, c & high, d & high)


@triton.jit
def _word(nibbles, bits):
    return (nibbles & 0x0F0F0F0F) | (bits & 0x10101010)


@triton.jit
def _five_bits(w, tops, top, first, at, mask, N, B, L: tl.constexpr):
    a, b, c, d = load_4(as_words(w), top, first, at, mask, N, B, L)
    h = load(as_words(tops) + at, mask)
    low = _word(a, h << 4), _word(b, h << 3), _word(c, h << 2), _word(d, h << 1)
    return low, (_word(a >> 4, h), _word(b >> 4, h >> 1), _word(c >> 4, h >> 2), _word(d >> 4, h >> 3))


@triton.jit
def q4_1(w, top, first, at, mask, N, B, L: tl.constexpr):
    """Words 0-3, 16 times words 4-7, (W, M); W = d, M = m."""
    low, high = _four_bits(w, top, first, at, mask, N, B, L)
    dm = load(as_words(w + N * B * 16) + at, mask)
    return low, high, (low_half(dm), high_half(dm))


@triton.jit
def q5_1(w, top, first, at, mask, N, B, L: tl.constexpr):
    """Words 0-3, words 4-7, (W, M); W = d, M = m."""
    tops = w + N * B * 16
    low, high = _five_bits(w, tops, top, first, at, mask, N, B, L)
    dm = load(as_words(tops + padded(N * B * 4)) + at, mask)
    return low, high, (low_half(dm), high_half(dm))


@triton.jit
def _k(scales, at, mask, N, B):
    """W = d * scale, M = -(dmin * minimum)."""
    pair = load(as_shorts(scales) + at, mask).to(tl.int32)
    dm = load(as_words(scales + padded(N * B * 2)) + (at >> 3), mask)
    return low_half(dm) * (pair & 255).to(tl.float32), -(high_half(dm) * (pair >> 8).to(tl.float32))


@triton.jit
def q4_k(w, top, first, at, mask, N, B, L: tl.constexpr):
    """Words 0-3, 16 times words 4-7, (W, M)."""
    low, high = _four_bits(w, top, first, at, mask, N, B, L)
    return low, high, _k(w + N * B * 16, at, mask, N, B)


@triton.jit
def q5_k(w, top, first, at, mask, N, B, L: tl.constexpr):
    """Words 0-3, words 4-7, (W, M)."""
    tops = w + N * B * 16
    low, high = _five_bits(w, tops, top, first, at, mask, N, B, L)
    return low, high, _k(tops + padded(N * B * 4), at, mask, N, B)
