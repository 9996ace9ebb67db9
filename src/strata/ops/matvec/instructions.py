"""Single instructions that Triton has no name for, each with a twin in plain Triton.

The interpreter runs no inline assembly, so `ASM` (a constant of the process) chooses. Twins are exact: interpreter
tests hold the twins against the judge, the device suite holds the instructions against it.

A byte permutation (``prmt``) picks four bytes out of two registers by the low three bits of four nibbles, the
*selectors*: a look-up of four weights in a table of eight in one instruction, of sixteen in three.
"""

import triton
import triton.language as tl

ASM = tl.constexpr(not triton.knobs.runtime.interpret)


@triton.jit
def dot_16(words, x, UNSIGNED: tl.constexpr):
    """Sum of the products of 16 bytes, four words of each: int32. With ``UNSIGNED`` those of ``words`` are 0 to 255."""
    total = words[0] & 0
    for i in tl.static_range(4):
        if ASM:
            if UNSIGNED:
                total = tl.inline_asm_elementwise(
                    "dp4a.u32.s32 $0, $1, $2, $3;", "=r,r,r,r", [words[i], x[i], total],
                    dtype=tl.int32, is_pure=True, pack=1,
                )  # fmt: skip
            else:
                total = tl.inline_asm_elementwise(
                    "dp4a.s32.s32 $0, $1, $2, $3;", "=r,r,r,r", [words[i], x[i], total],
                    dtype=tl.int32, is_pure=True, pack=1,
                )  # fmt: skip
        else:
            for j in tl.static_range(4):
                byte = (words[i] << (24 - 8 * j)) >> 24
                if UNSIGNED:
                    byte &= 255
                total += byte * ((x[i] << (24 - 8 * j)) >> 24)
    return total


@triton.jit
def _find(selectors, LOW: tl.constexpr, HIGH: tl.constexpr):
    """Twin: four nibbles to four bytes of a table of 16, eight of them in each 64-bit number."""
    word = selectors & 0
    for i in tl.static_range(4):
        nibble = (selectors >> (4 * i)) & 15
        eight = tl.where(nibble < 8, (nibble & 0).to(tl.int64) + LOW, (nibble & 0).to(tl.int64) + HIGH)
        byte = (eight >> ((nibble & 7) * 8).to(tl.int64)) & 255
        word |= byte.to(tl.int32) << (8 * i)
    return word


@triton.jit
def look_up_16(nibbles, TABLE: tl.constexpr):
    """Eight nibbles to two words of a table of 16: bits 0-15 to the first, 16-31 to the second."""
    if ASM:
        low, high = tl.inline_asm_elementwise(
            TABLE[0], "=&r,=&r,r", [nibbles], dtype=(tl.int32, tl.int32), is_pure=True, pack=1
        )
    else:
        low, high = _find(nibbles, TABLE[1], TABLE[2]), _find(nibbles >> 16, TABLE[1], TABLE[2])
    return low, high


@triton.jit
def look_up_signed(selectors, signs, TABLE: tl.constexpr):
    """Four selectors to a word of a table of 8, or of its negation where bit 2 of the nibble in ``signs`` is set.

    ``signs`` is ``... & 0x4444 | 0x3210``: itself the selectors of the last permutation.
    """
    if ASM:
        word = tl.inline_asm_elementwise(TABLE[0], "=&r,r,r", [selectors, signs], dtype=tl.int32, is_pure=True, pack=1)
    else:
        word = _find(selectors | ((signs & 0x4444) << 1), TABLE[1], TABLE[2])
    return word


@triton.jit
def look_up_8(selectors, TABLE: tl.constexpr):
    """Four selectors to a word of a table of 8."""
    if ASM:
        word = tl.inline_asm_elementwise(TABLE[0], "=r,r", [selectors], dtype=tl.int32, is_pure=True, pack=1)
    else:
        word = _find(selectors, TABLE[1], TABLE[2])
    return word


@triton.jit
def near_entry(index, low_address, high_address, ENTRY: tl.constexpr, BYTE: tl.constexpr):
    """The codeword of 16 bits that byte ``BYTE`` of ``index`` numbers; not in the interpreter.

    The address of the grid comes in two halves: it starts at a multiple of its 512 bytes, so the lower half of an
    entry's address is two instructions and the upper one is known. Not pure, so that it stays behind
    `strata.ops.dependent.wait`, and loads of weights, which are before that, do not wait for it.
    """
    return tl.inline_asm_elementwise(
        ENTRY[BYTE], "=r,r,r,r", [index, low_address, high_address], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def near_look_up(selectors, signs, constants, TABLE: tl.constexpr, GROUP: tl.constexpr):
    """`look_up_signed` with a third of its constants in registers, and signs still to be shifted; on a GPU only."""
    return tl.inline_asm_elementwise(
        TABLE[GROUP], "=&r,r,r,r,r,r", [selectors, signs, constants[0], constants[1], constants[2]], dtype=tl.int32,
        is_pure=True, pack=1,
    )  # fmt: skip
