"""Types with a minimum: Q4_1, Q5_1, Q4_K, Q5_K.

Four-bit codes need one instruction a word: the high nibbles stay where they are, sixteen times too large, and
their sum is shifted instead. Codes of five bits take four.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_shorts, as_words, high_half, load, load_4, low_half, padded


@triton.jit
def _four_bits(nibbles):
    a, b, c, d = nibbles
    low, high = 0x0F0F0F0F, -0x0F0F0F10  # the latter is 0xF0F0F0F0
    return (a & low, b & low, c & low, d & low), (a & high, b & high, c & high, d & high)


@triton.jit
def _word(nibbles, bits):
    return (nibbles & 0x0F0F0F0F) | (bits & 0x10101010)


@triton.jit
def _five_bits(nibbles, h):
    a, b, c, d = nibbles
    low = _word(a, h << 4), _word(b, h << 3), _word(c, h << 2), _word(d, h << 1)
    return low, (_word(a >> 4, h), _word(b >> 4, h >> 1), _word(c >> 4, h >> 2), _word(d >> 4, h >> 3))


@triton.jit
def fetch_q4_1(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, d and m."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    return nibbles, load(as_words(w + size * 16), here, OFF, L, EVEN)


@triton.jit
def q4_1(raw):
    """Words 0-3, 16 times words 4-7, (W, M); W = d, M = m."""
    low, high = _four_bits(raw[0])
    return low, high, (low_half(raw[1]), high_half(raw[1]))


@triton.jit
def fetch_q5_1(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, fifth bits, d and m."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    tops = w + size * 16
    h = load(as_words(tops), here, OFF, L, EVEN)
    return nibbles, h, load(as_words(tops + padded(size * 4)), here, OFF, L, EVEN)


@triton.jit
def q5_1(raw):
    """Words 0-3, words 4-7, (W, M); W = d, M = m."""
    low, high = _five_bits(raw[0], raw[1])
    return low, high, (low_half(raw[2]), high_half(raw[2]))


@triton.jit
def _fetch_k(scales, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    pair = load(as_shorts(scales), here, OFF, L, EVEN)
    return pair, load(as_words(scales + padded(size * 2)), here, OFF, L, EVEN, 3)


@triton.jit
def _k(scales):
    """W = d * scale, M = -(dmin * minimum)."""
    pair, dm = scales[0].to(tl.int32), scales[1]
    return low_half(dm) * (pair & 255).to(tl.float32), -(high_half(dm) * (pair >> 8).to(tl.float32))


@triton.jit
def fetch_q4_k(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, scales."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    return nibbles, _fetch_k(w + size * 16, size, here, OFF, L, EVEN)


@triton.jit
def q4_k(raw):
    """Words 0-3, 16 times words 4-7, (W, M)."""
    low, high = _four_bits(raw[0])
    return low, high, _k(raw[1])


@triton.jit
def fetch_q5_k(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, fifth bits, scales."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    tops = w + size * 16
    h = load(as_words(tops), here, OFF, L, EVEN)
    return nibbles, h, _fetch_k(tops + padded(size * 4), size, here, OFF, L, EVEN)


@triton.jit
def q5_k(raw):
    """Words 0-3, words 4-7, (W, M)."""
    low, high = _five_bits(raw[0], raw[1])
    return low, high, _k(raw[2])
