"""Loading fields of a tile's blocks from planes (`strata.ops.planes`).

A tile is one axis of ``H L`` blocks: H rows (from ``top``) of L neighbouring blocks (from ``first``). One axis leaves
the compiler one layout to choose, a block to a thread, for numbers of which a block has one, two or four, and for
look-ups. Over two axes Triton 3.6 orders lanes by rows in one load and by blocks in the next, and shuffles between
them.

Where a tile's blocks lie is worked out once (`place`); the same tile ``OFF`` blocks further on is the same addresses
plus a constant, which costs no instruction. In all of these ``here`` is what `place` gave, OFF a multiple of L, and
``EVEN`` says that all blocks exist.
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
def _numbers(top, first, N, B, H: tl.constexpr, L: tl.constexpr, W: tl.constexpr):
    i = tl.arange(0, H * L * W)
    row = tl.minimum(top + i // (W * L), N - 1)
    return row * (B * W) + first * W + i % (W * L)


@triton.jit
def place(top, first, N, B, H: tl.constexpr, L: tl.constexpr):
    """A tile of a matrix of N rows of B blocks; rows that are not there are the last one.

    Returns:
        Numbers of its blocks ``[H L]``, of the words of fields of two words ``[2 H L]`` and of four, and how many
        blocks a row has left from ``first`` on.
    """
    return (
        _numbers(top, first, N, B, H, L, 1),
        _numbers(top, first, N, B, H, L, 2),
        _numbers(top, first, N, B, H, L, 4),
        B - first,
    )


@triton.jit
def load(p, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr, SHIFT: tl.constexpr = 0):
    """One number for every block of the tile, or one for ``2^SHIFT`` of them; zero for those that are not there."""
    at = here[0]
    if SHIFT == 0:
        where = p + at + OFF
    elif OFF % (1 << SHIFT) == 0:
        where = p + (at >> SHIFT) + (OFF >> SHIFT)
    else:
        where = p + ((at + OFF) >> SHIFT)
    if EVEN:
        value = tl.load(where)
    else:
        value = tl.load(where, mask=OFF + tl.arange(0, at.shape[0]) % L < here[3], other=0)
    return value


@triton.jit
def _words(p, at, left, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr, W: tl.constexpr):
    """``W`` words for every block of the tile: ``[H L W]``."""
    where = p + at + OFF * W
    if EVEN:
        words = tl.load(where)
    else:
        words = tl.load(where, mask=tl.arange(0, at.shape[0]) % (W * L) < (left - OFF) * W, other=0)
    return words


@triton.jit
def load_2(p, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Two neighbouring words for every block, by one load of eight bytes: a tuple of two tiles."""
    pair = _words(p, here[1], here[3], OFF, L, EVEN, 2)
    return tl.split(tl.reshape(pair, (here[0].shape[0], 2)))


@triton.jit
def load_4(p, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """Four neighbouring words for every block, by one load of 16 bytes: a tuple of four tiles."""
    words = _words(p, here[2], here[3], OFF, L, EVEN, 4)
    even, odd_words = tl.split(tl.reshape(words, (here[0].shape[0], 2, 2)))
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
def nibble_of(byte, here):
    """Which nibble of its byte (a plane of half a byte a block, loaded with SHIFT 1) is the block's."""
    return (byte.to(tl.int32) >> ((here[0] & 1) * 4).to(tl.int32)) & 15
