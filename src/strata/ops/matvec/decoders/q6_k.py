"""Q6_K: six bits at the top of each byte, so that their sign is the byte's; sums are shifted right by two."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_shorts, as_words, load, load_2, load_4, padded

_TOP = tl.constexpr(-0x3F3F3F40)  # 0xC0C0C0C0


@triton.jit
def _word(nibbles, tops):
    return (nibbles & 0x3C3C3C3C) | (tops & _TOP)


@triton.jit
def fetch_q6_k(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, top bits, steps, d."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    tops = w + size * 16
    top_bits = load_2(as_words(tops), here, OFF, L, EVEN)
    steps = tops + padded(size * 8)
    pair = load(as_shorts(steps), here, OFF, L, EVEN)
    return nibbles, top_bits, pair, load(as_halves(steps + padded(size * 2)), here, OFF, L, EVEN, 3)


@triton.jit
def q6_k(raw):
    """4 times words 0-3, 4 times words 4-7, (W, steps of the halves); W = d."""
    nibbles, top_bits, steps, d = raw
    a, b, c, e = nibbles
    g, h = top_bits
    low = _word(a << 2, g << 6), _word(b << 2, g << 4), _word(c << 2, g << 2), _word(e << 2, g)
    high = _word(a >> 2, h << 6), _word(b >> 2, h << 4), _word(c >> 2, h << 2), _word(e >> 2, h)
    pair = steps.to(tl.int32)
    return low, high, (d.to(tl.float32), (pair << 24) >> 24, pair >> 8)
