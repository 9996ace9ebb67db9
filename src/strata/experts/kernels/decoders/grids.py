"""What the codebook types share: sign bits, and codewords looked up and spread over the registers."""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from strata.experts.kernels.emit import BYTES, I1, I8, I16, I32, I64, Emit
from strata.experts.kernels.order import PLANES, WORDS, Order
from strata.experts.kernels.targets.scalar import elements, scalar_longs
from strata.experts.kernels.targets.target import Index, Target
from strata.formats.codebooks.grids import grid


def with_parity(emit: Emit, sevens: ir.Value) -> ir.Value:
    """Bytes of seven sign bits, in elements of any width, get the eighth that makes the number of minus signs even."""
    builder, kind = emit.builder, sevens.type
    folded = sevens
    for shift in (4, 2, 1):  # bit 0 of every byte ends as the sum of its bits; what crosses bytes never reaches it
        folded = builder.xor(folded, builder.lshr(folded, emit.every(kind, shift)))
    ones = emit.every(kind, 0x0101010101010101 & ((1 << kind.element.width) - 1))
    return builder.or_(sevens, builder.shl(builder.and_(folded, ones), emit.every(kind, 7)))


def signed(emit: Emit, magnitudes: Sequence[ir.Value], signs: ir.Value, order: Order, offset: int) -> list[ir.Value]:
    """``offset + w`` from magnitudes in registers and 32 bytes of sign bits, one per weight, set for minus."""
    builder, middle = emit.builder, emit.every(BYTES, offset)
    result = []
    for magnitude, numbers in zip(magnitudes, order.astype(np.int64), strict=True):
        minus = emit.bits(signs, numbers)
        result.append(builder.select(minus, builder.sub(middle, magnitude), builder.add(middle, magnitude)))
    return result


def order_of_fours(target: Target) -> Order:
    """Order in which `fours` leaves weights."""
    return PLANES if target.byte_tables is not None or target.word_tables else WORDS


def fours(emit: Emit, target: Target, name: str, raw: ir.Value, ninth_at: int | None = None) -> list[ir.Value]:
    """Codewords of four weights: 64 of them, in four registers.

    Args:
        emit: the builder.
        target: looks up whole planes in registers, or words in memory.
        name: of the grid.
        raw: the block; the indices' low bytes start at byte 2.
        ninth_at: where their ninth bits are, if they have one.
    """
    words = grid(name).astype(np.uint8)
    ninth = None if ninth_at is None else _bits64(emit, raw, ninth_at)
    if target.byte_tables is not None:
        low, high = emit.load(raw, 2, BYTES), () if ninth is None else (ninth,)
        if words.max() < 16:  # two weights in a byte halve the number of tables
            pairs = [words[:, 2 * k] | (words[:, 2 * k + 1] << np.uint8(4)) for k in (0, 1)]
            found = [target.byte_tables.look_up(emit, pair, low, high) for pair in pairs]
            return [emit.low_bits(emit.byte_shift(f, shift), 4) for f in found for shift in (0, 4)]
        return [target.byte_tables.look_up(emit, words[:, k], low, high) for k in range(4)]
    if target.word_tables:
        return _fours_by_words(emit, target, words, raw, ninth)
    if ninth is None:
        indices = [emit.load(raw, 2 + i, I8) for i in range(64)]
    else:
        wide = emit.widened(emit.load(raw, 2, BYTES), I16)
        top = emit.builder.select(ninth, emit.every(wide.type, 256), emit.every(wide.type, 0))
        indices = elements(emit, emit.builder.or_(wide, top))
    longs = np.ascontiguousarray(words).view("<u4")[:, 0]
    return [emit.cast(found, BYTES) for found in scalar_longs(emit, longs, indices, 16)]


def _fours_by_words(
    emit: Emit, target: Target, words: NDArray[np.uint8], raw: ir.Value, ninth: ir.Value | None
) -> list[ir.Value]:
    """The same by looking up 16-bit words of four digits, 32 at a time; digits are levels, or numbers of them."""
    levels = np.unique(words)
    digits = words if words.max() < 16 else np.searchsorted(levels, words)
    packed = np.bitwise_or.reduce(digits.astype(np.uint16) << np.arange(0, 16, 4, dtype=np.uint16), axis=1)
    index = emit.widened(emit.load(raw, 2, BYTES), I16)
    if ninth is not None:
        top = emit.builder.select(ninth, emit.every(index.type, 256), emit.every(index.type, 0))
        index = emit.builder.or_(index, top)
    halves = [target.lookup_words(emit, packed, Index(emit.pick(index, range(at, at + 32)))) for at in (0, 32)]
    both = emit.join(halves)
    planes = [
        emit.builder.trunc(emit.builder.lshr(both, emit.every(both.type, shift)), BYTES) if shift else
        emit.builder.trunc(both, BYTES)
        for shift in (0, 8)
    ]  # fmt: skip
    nibbles = [emit.low_bits(emit.byte_shift(plane, shift), 4) for plane in planes for shift in (0, 4)]
    return nibbles if words.max() < 16 else [target.levels(emit, levels.tolist(), nibble) for nibble in nibbles]


def packed_eights(name: str) -> NDArray[np.uint16]:
    """Codewords of eight weights with three levels, as 16-bit words of eight digits: ``uint16 [codewords]``."""
    words = grid(name)
    levels = np.unique(words)
    digits = np.searchsorted(levels, words).astype(np.uint16)
    return np.bitwise_or.reduce(digits << np.arange(0, 16, 2, dtype=np.uint16), axis=1)


def digits(emit: Emit, words: ir.Value, place: int) -> list[ir.Value]:
    """Two-bit digits of 32 words in order `PLANES`, moved up by ``place`` bits within their bytes."""
    packed = emit.cast(words, BYTES)
    mask = emit.every(BYTES, 3 << place)
    result = []
    for register in range(4):
        right = 2 * register - place
        if right >= 0:
            moved = emit.byte_shift(packed, right)
        else:
            wide = emit.cast(packed, ir.VectorType(I32, 16))
            moved = emit.cast(emit.builder.shl(wide, emit.every(wide.type, -right)), BYTES)
        result.append(emit.builder.and_(moved, mask))
    return result


def nibble_steps(emit: Emit, raw: ir.Value, at: int, count: int) -> ir.Value:
    """``count`` nibbles s from ``count / 2`` bytes as ``2 s + 1``: ``<count x i32>``."""
    packed = emit.load(raw, at, ir.VectorType(I8, count // 2))
    wide = emit.widened(emit.pick(packed, [i // 2 for i in range(count)]), I32)
    nibbles = emit.low_bits(emit.builder.lshr(wide, emit.constant(I32, [4 * (i % 2) for i in range(count)])), 4)
    return odd(emit, nibbles)


def odd(emit: Emit, scales: ir.Value) -> ir.Value:
    """``2 s + 1``."""
    doubled = emit.builder.shl(scales, emit.every(scales.type, 1))
    return emit.builder.or_(doubled, emit.every(scales.type, 1))


def _bits64(emit: Emit, raw: ir.Value, at: int) -> ir.Value:
    """Eight bytes as 64 single bits, in order: ``<64 x i1>``."""
    return emit.builder.bitcast(emit.load(raw, at, I64), ir.VectorType(I1, 64))
