"""Nibbles that index 16 levels: IQ4_NL, IQ4_XS, MXFP4, NVFP4. 13 instructions look eight weights up."""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.memory import as_halves, as_shorts, as_words, load, load_4, padded
from strata.ops.matvec.instructions import look_up_16
from strata.ops.matvec.tables import E2M1, IQ4


@triton.jit
def _weights(nibbles, TABLE: tl.constexpr):
    a, b, c, d = nibbles
    a_low, a_high = look_up_16(a, TABLE)
    b_low, b_high = look_up_16(b, TABLE)
    c_low, c_high = look_up_16(c, TABLE)
    d_low, d_high = look_up_16(d, TABLE)
    return (a_low, b_low, c_low, d_low), (a_high, b_high, c_high, d_high)


@triton.jit
def fetch_iq4_nl(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, d."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    return nibbles, load(as_halves(w + size * 16), here, OFF, L, EVEN)


@triton.jit
def iq4_nl(raw):
    """Words 0-3, words 4-7, (W); W = d."""
    low, high = _weights(raw[0], IQ4)
    return low, high, (raw[1].to(tl.float32),)


@triton.jit
def fetch_iq4_xs(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, scale, d."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    scales = w + size * 16
    scale = load(scales.to(tl.pointer_type(tl.int8)), here, OFF, L, EVEN)
    return nibbles, scale, load(as_halves(scales + padded(size)), here, OFF, L, EVEN, 3)


@triton.jit
def iq4_xs(raw):
    """Words 0-3, words 4-7, (W); W = d * scale."""
    low, high = _weights(raw[0], IQ4)
    return low, high, (raw[2].to(tl.float32) * raw[1].to(tl.float32),)


@triton.jit
def fetch_mxfp4(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, exponent."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    return nibbles, load(w + size * 16, here, OFF, L, EVEN)


@triton.jit
def mxfp4(raw):
    """Words 0-3, words 4-7, (W); W = 2^(e - 128), the two smallest of which are subnormal."""
    low, high = _weights(raw[0], E2M1)
    e = raw[1].to(tl.int32)
    bits = tl.where(e < 2, 0x200000 << (e & 1), (e - 1) << 23)
    return low, high, (bits.to(tl.float32, bitcast=True),)


@triton.jit
def _e4m3(byte):
    """Half of an E4M3 number without sign: its bits, moved to the top of a float16's, are 2^-7 times that."""
    half = ((byte & 127) << 7).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return tl.where(byte == 0x7F, 0.0, half * 128.0)


@triton.jit
def fetch_nvfp4(w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Nibbles, scales of both halves."""
    nibbles = load_4(as_words(w), here, OFF, L, EVEN)
    return nibbles, load(as_shorts(w + size * 16), here, OFF, L, EVEN)


@triton.jit
def nvfp4(raw):
    """Words 0-3, words 4-7, (W of words 0-3, W of words 4-7)."""
    low, high = _weights(raw[0], E2M1)
    pair = raw[1].to(tl.int32)
    return low, high, (_e4m3(pair & 255), _e4m3((pair >> 8) & 255))
