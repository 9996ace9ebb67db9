"""From planes to float16 weights: one function for every block type, in registers.

A weight becomes ``fl16(fl16(SCALE * W) * code)`` (with a minimum ``fl16(that product + fl16(SCALE * M))``, one
rounding), where W is the block's scale, or that of its half; see docs/numerics.md for codes and scales. The kernels of
windows decode to words of four bytes; here a word becomes four halves by a byte permutation into the low digits of
1024, a subtraction and a product, two numbers at a time: 1.75 instructions a weight.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders import fetch, form, lexicon, unpack
from strata.ops.matvec.decoders.memory import place
from strata.ops.matvec.instructions import ASM
from strata.ops.prompt.halves import SCALE

_SPREAD = "prmt.b32 b, a, 0x64646464, 0x4140; prmt.b32 c, a, 0x64646464, 0x4342; "
_OUT = "mov.b32 {$0, $1}, b; mov.b32 {$2, $3}, c; }"
_SIGNED = tl.constexpr(
    "{ .reg .b32 a, b, c, s, m; xor.b32 a, $4, 0x80808080; " + _SPREAD
    + "mov.b32 m, 0x64806480; mov.b32 s, {$5, $5}; sub.f16x2 b, b, m; sub.f16x2 c, c, m; "
    + "mul.f16x2 b, b, s; mul.f16x2 c, c, s; " + _OUT
)  # fmt: skip
_UNSIGNED = tl.constexpr(
    "{ .reg .b32 a, b, c, s, m, o; mov.b32 a, $4; " + _SPREAD
    + "mov.b32 o, 0x64006400; mov.b32 s, {$5, $5}; mov.b32 m, {$6, $6}; sub.f16x2 b, b, o; sub.f16x2 c, c, o; "
    + "fma.rn.f16x2 b, b, s, m; fma.rn.f16x2 c, c, s, m; " + _OUT
)  # fmt: skip


@triton.jit
def _signed(word, scale):
    """Four signed bytes times a scale: a tuple of four tiles of float16."""
    if ASM:
        four = tl.inline_asm_elementwise(
            _SIGNED, "=h,=h,=h,=h,r,h", [word, scale],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        four = ()
        for j in tl.static_range(4):
            code = ((word << (24 - 8 * j)) >> 24).to(tl.float32)
            four = four + ((code * scale.to(tl.float32)).to(tl.float16),)  # exact before it is rounded
    return four


@triton.jit
def _unsigned(word, scale, minimum):
    """Four bytes of 0 to 255 times a scale plus a minimum: a tuple of four tiles of float16."""
    if ASM:
        four = tl.inline_asm_elementwise(
            _UNSIGNED, "=h,=h,=h,=h,r,h,h", [word, scale, minimum],
            dtype=(tl.float16, tl.float16, tl.float16, tl.float16), is_pure=True, pack=1,
        )  # fmt: skip
    else:
        four = ()
        for j in tl.static_range(4):
            code = ((word >> (8 * j)) & 255).to(tl.float32)
            four = four + ((code * scale.to(tl.float32) + minimum.to(tl.float32)).to(tl.float16),)
    return four


@triton.jit
def _factors(KIND: tl.constexpr, scales):
    """Scales of the first and of the second half of each block, and its minimum: float32, not yet times `SCALE`."""
    FORM: tl.constexpr = form(KIND)
    first, second, minimum = scales[0], scales[0], scales[0]
    if FORM == "halves":
        second = scales[1]
    if FORM == "steps":
        unit = scales[0]
        if KIND == "Q6_K":
            unit = unit * 0.25  # its words are four times too large
        first, second = unit * scales[1].to(tl.float32), unit * scales[2].to(tl.float32)
    if FORM == "minimum":
        minimum = scales[1]
        if KIND == "Q4_K" or KIND == "Q4_1":
            second = second * 0.0625  # words 4-7 are sixteen times too large
    return first, second, minimum


@triton.jit
def _joined(parts, HALF: tl.constexpr):
    joined = ()
    for i in tl.static_range(HALF):
        joined = joined + (tl.join(parts[i], parts[i + HALF]),)
    return joined


@triton.jit
def _blocks(KIND: tl.constexpr, raw, words, scale, here):
    """Weights of a tile of blocks, in order along the new axes: float16 ``[blocks, 2, 2, 2, 2, 2]``, times `SCALE`."""
    low, high, scales = unpack(KIND, raw, words, here)
    a, b, m = _factors(KIND, scales)
    unit = scale * SCALE
    a, b, m = (a * unit).to(tl.float16), (b * unit).to(tl.float16), (m * unit).to(tl.float16)
    parts = ()
    for j in tl.static_range(4):
        if form(KIND) == "minimum":
            parts = parts + _unsigned(low[j], a, m)
        else:
            parts = parts + _signed(low[j], a)
    for j in tl.static_range(4):
        if form(KIND) == "minimum":
            parts = parts + _unsigned(high[j], b, m)
        else:
            parts = parts + _signed(high[j], b)
    # Weight p of a block is part p; joining p with p + 16 first leaves p's bits in order along the axes.
    sixteen = _joined(parts, 16)
    eight = _joined(sixteen, 8)
    four = _joined(eight, 4)
    two = _joined(four, 2)
    return _joined(two, 1)[0]


@triton.jit
def weights(KIND: tl.constexpr, w, table, scale, top, first, N, B, H: tl.constexpr, L: tl.constexpr,
            EVEN: tl.constexpr):  # fmt: skip
    """``H`` rows from ``top``, ``L`` blocks of each from ``first``: float16 ``[H, 32 L]``, times `SCALE`.

    Args:
        KIND: block type.
        w: planes of ``[N, 32 B]``.
        table: the type's grid, or any pointer.
        scale: of the whole matrix, float32.
        top, first: rows behind the last one repeat it, blocks behind the last one are zero.
        EVEN: B is a multiple of L.
    """
    here = place(top, first, N, B, H, L)
    raw = fetch(KIND, w, N * B, here, 0, L, EVEN)
    return tl.reshape(_blocks(KIND, raw, lexicon(KIND, table, H * L), scale, here), (H, 32 * L))


@triton.jit
def fetched(KIND: tl.constexpr, w, top, first, N, B, EVEN: tl.constexpr):
    """A tile as it lies in memory, for `fragment`: 64 rows from ``top``, 4 blocks of each from ``first``."""
    return (
        fetch(KIND, w, N * B, place(top, first, N, B, 32, 4), 0, 4, EVEN),
        fetch(KIND, w, N * B, place(top + 32, first, N, B, 32, 4), 0, 4, EVEN),
    )


@triton.jit
def fragment(KIND: tl.constexpr, raw, words, scale, top, first, N, B):
    """What `fetched` gave as the tensor cores' first operand: float16 ``[64, 128]``, times `SCALE`.

    Rows and columns come in the order in which four warps, a block to a thread, hold them: so nothing passes between
    threads, and the weights go from the registers in which they were decoded into the product. Row R is row
    `row_of` (R); column ``16 s + 8 h + 2 t + e`` is weight ``4 s + 2 h + e`` of block t (`strata.ops.prompt.order`).

    Args:
        raw: what `fetched` gave for the same ``top``, ``first``, ``N``, ``B``.
        words: the type's `lexicon` for 128 blocks.
        scale: of the whole matrix, float32.
    """
    upper = _blocks(KIND, raw[0], words, scale, place(top, first, N, B, 32, 4))
    lower = _blocks(KIND, raw[1], words, scale, place(top + 32, first, N, B, 32, 4))
    # Warp, row of eight, t, s, h, e, upper or lower.
    both = tl.reshape(tl.join(upper, lower), (4, 8, 4, 8, 2, 2, 2))
    return tl.reshape(tl.permute(both, (0, 6, 1, 3, 4, 2, 5)), (64, 128))


@triton.jit
def row_of(R):
    """Which of the 64 rows is row R of a `fragment`."""
    return R // 8 % 2 * 32 + R // 16 * 8 + R % 8
