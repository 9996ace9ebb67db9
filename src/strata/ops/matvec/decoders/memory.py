"""Loading fields of a tile's blocks from planes (`strata.ops.planes`).

A tile is one axis of ``H L`` blocks: H rows (from ``top``) of L neighbouring blocks (from ``first``). One axis leaves
the compiler one layout to choose, a block to a thread, for numbers of which a block has one, two or four, and for
look-ups. Over two axes Triton 3.6 orders lanes by rows in one load and by blocks in the next, and shuffles between
them.

In all of these ``at`` is row * B + block, and ``mask`` is None if all blocks exist.
"""

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
def _words(p, top, first, at, mask, N, B, L: tl.constexpr, W: tl.constexpr):
    """``W`` words for every block of the tile: ``[H L W]``, rows that are not there as the last one."""
    i = tl.arange(0, W * at.shape[0])
    row = tl.minimum(top + i // (W * L), N - 1)
    place = p + (row * (B * W) + first * W) + i % (W * L)
    if mask is None:
        words = tl.load(place)
    else:
        words = tl.load(place, mask=first + i % (W * L) // W < B, other=0)
    return words


@triton.jit
def load_2(p, top, first, at, mask, N, B, L: tl.constexpr):
    """Two neighbouring words for every block, by one load of eight bytes: a tuple of two tiles."""
    pair = _words(p, top, first, at, mask, N, B, L, 2)
    return tl.split(tl.reshape(pair, (at.shape[0], 2)))


@triton.jit
def load_4(p, top, first, at, mask, N, B, L: tl.constexpr):
    """Four neighbouring words for every block, by one load of 16 bytes: a tuple of four tiles."""
    words = _words(p, top, first, at, mask, N, B, L, 4)
    even, odd_words = tl.split(tl.reshape(words, (at.shape[0], 2, 2)))
    first_word, third = tl.split(even)
    second, fourth = tl.split(odd_words)
    return first_word, second, third, fourth


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
