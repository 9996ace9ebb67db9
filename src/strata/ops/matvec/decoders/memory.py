"""Loading fields of a tile's blocks from planes (`strata.ops.planes`)."""

import triton
import triton.language as tl


@triton.jit
def padded(size):
    """Bytes of a plane, up to where the next one starts."""
    return (size + 15) // 16 * 16


@triton.jit
def as_words(p):
    """Byte pointer as a pointer to 32-bit words."""
    return p.to(tl.pointer_type(tl.int32))


@triton.jit
def as_shorts(p):
    """Byte pointer as a pointer to signed 16-bit words."""
    return p.to(tl.pointer_type(tl.int16))


@triton.jit
def as_halves(p):
    """Byte pointer as a pointer to float16."""
    return p.to(tl.pointer_type(tl.float16))


@triton.jit
def load(p, mask):
    """One number for every block of the tile; zero for those that are not there."""
    if mask is None:
        value = tl.load(p)
    else:
        value = tl.load(p, mask=mask, other=0)
    return value


@triton.jit
def load_2(p, mask):
    """Two neighbouring words for every block, by one load of eight bytes: a tuple of two tiles ``p``."""
    at = p[:, :, None] + tl.arange(0, 2)[None, None, :]
    if mask is None:
        pair = tl.load(at)
    else:
        pair = tl.load(at, mask=mask[:, :, None], other=0)
    return tl.split(pair)


@triton.jit
def load_4(p, mask):
    """Four neighbouring words for every block, by one load of 16 bytes: a tuple of four tiles."""
    at = p[:, :, None] + tl.arange(0, 4)[None, None, :]
    if mask is None:
        words = tl.load(at)
    else:
        words = tl.load(at, mask=mask[:, :, None], other=0)
    even, odd = tl.split(tl.reshape(words, (p.shape[0], p.shape[1], 2, 2)))
    first, third = tl.split(even)
    second, fourth = tl.split(odd)
    return first, second, third, fourth


@triton.jit
def low_half(word):
    """The float16 in bits 0-15, as float32."""
    return word.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def high_half(word):
    """The float16 in bits 16-31, as float32."""
    return (word >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def odd(scale):
    """The stored scale s as the odd number 2 s + 1."""
    return 2 * scale.to(tl.int32) + 1


@triton.jit
def nibble_of(plane, at, mask):
    """Nibble number ``at`` of a plane of bytes."""
    return (load(plane + (at >> 1), mask).to(tl.int32) >> ((at & 1) * 4)) & 15
