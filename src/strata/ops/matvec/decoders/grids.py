"""Codewords of a grid: IQ3_XXS, IQ3_S, IQ2_XS, IQ2_S, IQ1_M.

The grid lies in device memory as selectors (`strata.ops.matvec.tables.codewords`). A gather from it is the one
expensive step: 32 threads read anywhere in it. Signs cost no arithmetic: they choose between the table and its
negation. Codewords are loaded as unsigned numbers, which need no instruction to widen.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_shorts, as_words, load, load_2, nibble_of, odd, padded
from strata.ops.matvec.instructions import ASM, look_up_8, look_up_signed, near_entry, near_look_up
from strata.ops.matvec.tables import ENTRY, IQ1, IQ2, IQ3_S, IQ3_XXS, IQ3_XXS_NEAR
from strata.ops.matvec.tables import SIGNS as _SIGNS

SIGNS = tl.constexpr(_SIGNS)


@triton.jit
def _select(signs):
    return (signs & 0x4444) | 0x3210


@triton.jit
def _codeword(table, index):
    return tl.load(table.to(tl.pointer_type(tl.uint16)) + index).to(tl.int32)


@triton.jit
def _entry(table, index, at: tl.constexpr):
    """Codeword number: byte ``at`` of ``index``."""
    return _codeword(table, (index >> (8 * at)) & 255)


@triton.jit
def _entry_9(table, index, high, at: tl.constexpr, bit: tl.constexpr):
    """Codeword number: byte ``at`` of ``index``, above it bit ``bit`` of ``high``."""
    return _codeword(table, ((index >> (8 * at)) & 255) | ((high << (8 - bit)) & 256))


@triton.jit
def fetch_iq3_xxs(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Indices, signs, scale, d."""
    indices = load_2(as_words(w), here, OFF, L, EVEN)
    sign_plane = w + padded(size * 8)
    s = load(as_words(sign_plane), here, OFF, L, EVEN)
    scales = sign_plane + padded(size * 4)
    scale = load(scales, here, OFF, L, EVEN, 1)
    return indices, s, scale, load(as_halves(scales + padded(size // 2)), here, OFF, L, EVEN, 3)


@triton.jit
def lexicon_iq3_xxs(table, SIZE: tl.constexpr):
    """The grid, the halves of its address, and for every block of a tile the constants behind it."""
    address, words = table.to(tl.int64, bitcast=True), table.to(tl.pointer_type(tl.int32)) + tl.arange(0, SIZE) % 2
    constants = tl.load(words + 128), tl.load(words + 130), tl.load(words + 132)
    return table, address.to(tl.int32), (address >> 32).to(tl.int32), constants


@triton.jit
def _four(lexicon, index, s, GROUP: tl.constexpr):
    """Four weights of IQ3_XXS, the GROUP-th of a block: byte ``GROUP % 4`` of ``index``, and their signs."""
    if ASM:
        entry = near_entry(index, lexicon[1], lexicon[2], ENTRY, GROUP % 4)
        word = near_look_up(entry, s, lexicon[3], IQ3_XXS_NEAR, GROUP)
    else:
        BY: tl.constexpr = SIGNS[GROUP]
        signs = s >> BY if BY >= 0 else s << -BY
        word = look_up_signed(_entry(lexicon[0], index, GROUP % 4), _select(signs), IQ3_XXS)
    return word


@triton.jit
def iq3_xxs(raw, lexicon, here):
    """Words 0-3, words 4-7, (W); W = d / 4 * (2 s + 1)."""
    indices, s, scale, d = raw
    i, j = indices
    low = _four(lexicon, i, s, 0), _four(lexicon, i, s, 1), _four(lexicon, i, s, 2), _four(lexicon, i, s, 3)
    high = _four(lexicon, j, s, 4), _four(lexicon, j, s, 5), _four(lexicon, j, s, 6), _four(lexicon, j, s, 7)
    return low, high, (d.to(tl.float32) * 0.25 * odd(nibble_of(scale, here)).to(tl.float32),)


@triton.jit
def fetch_iq3_s(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Indices, signs, ninth bits, scale, d."""
    indices = load_2(as_words(w), here, OFF, L, EVEN)
    sign_plane = w + padded(size * 8)
    s = load(as_words(sign_plane), here, OFF, L, EVEN)
    high_plane = sign_plane + padded(size * 4)
    h = load(high_plane, here, OFF, L, EVEN)
    scales = high_plane + padded(size)
    scale = load(scales, here, OFF, L, EVEN, 1)
    return indices, s, h, scale, load(as_halves(scales + padded(size // 2)), here, OFF, L, EVEN, 3)


@triton.jit
def iq3_s(raw, table, here):
    """Words 0-3, words 4-7, (W); W = d * (2 s + 1)."""
    indices, s, ninth, scale, d = raw
    i, j = indices
    h = ninth.to(tl.int32)
    low = (
        look_up_signed(_entry_9(table, i, h, 0, 0), _select(s << 2), IQ3_S),
        look_up_signed(_entry_9(table, i, h, 1, 1), _select(s << 1), IQ3_S),
        look_up_signed(_entry_9(table, i, h, 2, 2), _select(s), IQ3_S),
        look_up_signed(_entry_9(table, i, h, 3, 3), _select(s >> 1), IQ3_S),
    )
    high = (
        look_up_signed(_entry_9(table, j, h, 0, 4), _select(s >> 14), IQ3_S),
        look_up_signed(_entry_9(table, j, h, 1, 5), _select(s >> 15), IQ3_S),
        look_up_signed(_entry_9(table, j, h, 2, 6), _select(s >> 16), IQ3_S),
        look_up_signed(_entry_9(table, j, h, 3, 7), _select(s >> 17), IQ3_S),
    )
    return low, high, (d.to(tl.float32) * odd(nibble_of(scale, here)).to(tl.float32),)


@triton.jit
def _eight(table, index, first, second):
    """A codeword of eight weights under two sets of signs: two words."""
    entry = _codeword(table, index)
    return (
        look_up_signed(entry & 0x3333, _select(first), IQ2),
        look_up_signed((entry >> 2) & 0x3333, _select(second), IQ2),
    )


@triton.jit
def _iq2(table, i, h, s, BITS: tl.constexpr):
    """Four codewords: low bytes ``i``, their ``BITS`` upper bits in ``h``, signs ``s``."""
    top: tl.constexpr = ((1 << BITS) - 1) << 8
    a, b = _eight(table, (i & 255) | ((h << 8) & top), s << 2, s << 1)
    c, d = _eight(table, ((i >> 8) & 255) | ((h << (8 - BITS)) & top), s, s >> 1)
    e, f = _eight(table, ((i >> 16) & 255) | ((h << (8 - 2 * BITS)) & top), s >> 14, s >> 15)
    g, k = _eight(table, ((i >> 24) & 255) | ((h << (8 - 3 * BITS)) & top), s >> 16, s >> 17)
    return (a, b, c, d), (e, f, g, k)


@triton.jit
def _iq2_scales(pair, d):
    """W = d / 8, and the two steps 2 s + 1."""
    both = pair.to(tl.int32)
    return d.to(tl.float32) * 0.125, odd(both & 15), odd(both >> 4)


@triton.jit
def fetch_iq2_xs(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Indices, signs, top bits, scales, d."""
    sign_plane = w + padded(size * 4)
    high_plane = sign_plane + padded(size * 4)
    scales = high_plane + padded(size // 2)
    i = load(as_words(w), here, OFF, L, EVEN)
    s = load(as_words(sign_plane), here, OFF, L, EVEN)
    h = load(high_plane, here, OFF, L, EVEN, 1)
    pair = load(scales, here, OFF, L, EVEN)
    return i, s, h, pair, load(as_halves(scales + padded(size)), here, OFF, L, EVEN, 3)


@triton.jit
def iq2_xs(raw, table, here):
    """Words 0-3, words 4-7, (W, steps of the halves)."""
    i, s, h, pair, d = raw
    low, high = _iq2(table, i, nibble_of(h, here), s, 1)
    return low, high, _iq2_scales(pair, d)


@triton.jit
def fetch_iq2_s(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Indices, signs, top bits, scales, d."""
    sign_plane = w + padded(size * 4)
    high_plane = sign_plane + padded(size * 4)
    scales = high_plane + padded(size)
    i = load(as_words(w), here, OFF, L, EVEN)
    s = load(as_words(sign_plane), here, OFF, L, EVEN)
    h = load(high_plane, here, OFF, L, EVEN)
    pair = load(scales, here, OFF, L, EVEN)
    return i, s, h, pair, load(as_halves(scales + padded(size)), here, OFF, L, EVEN, 3)


@triton.jit
def iq2_s(raw, table):
    """Words 0-3, words 4-7, (W, steps of the halves)."""
    i, s, h, pair, d = raw
    low, high = _iq2(table, i, h.to(tl.int32), s, 2)
    return low, high, _iq2_scales(pair, d)


@triton.jit
def _moved(table, i, n):
    """A codeword of eight, moved up or down by bit 3 of the nibble ``n``: eight times that, as two words."""
    entry = _codeword(table, (i & 255) | ((n & 7) << 8))
    down = ((n >> 3) & 1) * 0x4444
    return look_up_8((entry & 0x3333) | down, IQ1), look_up_8(((entry >> 2) & 0x3333) | down, IQ1)


@triton.jit
def fetch_iq1_m(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Indices, top bits and directions, scales, d."""
    nibbles = w + padded(size * 4)
    scales = nibbles + padded(size * 2)
    i = load(as_words(w), here, OFF, L, EVEN)
    n = load(as_shorts(nibbles), here, OFF, L, EVEN)
    pair = load(scales, here, OFF, L, EVEN)
    return i, n, pair, load(as_halves(scales + padded(size)), here, OFF, L, EVEN, 3)


@triton.jit
def iq1_m(raw, table):
    """Words 0-3, words 4-7, (W, steps of the halves); W = d / 8."""
    i, nibbles, scales, unit = raw
    n, pair = nibbles.to(tl.int32), scales.to(tl.int32)
    a, b = _moved(table, i, n)
    c, d = _moved(table, i >> 8, n >> 4)
    e, f = _moved(table, i >> 16, n >> 8)
    g, k = _moved(table, i >> 24, n >> 12)
    return (a, b, c, d), (e, f, g, k), (unit.to(tl.float32) * 0.125, odd(pair & 7), odd(pair >> 3))
