"""From planes to the bytes of weights: one function for every block type, and what all of them share.

A decoder gives the eight words of each block of a tile as two tuples of four, and a tuple of scales that depends on
the type's form (docs/numerics.md). Words may be a power of two too large; `contribution` takes that out of the sums,
exactly.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.grids import iq1_m, iq2_s, iq2_xs, iq3_s, iq3_xxs
from strata.ops.matvec.decoders.levels import iq4_nl, iq4_xs, mxfp4, nvfp4
from strata.ops.matvec.decoders.minimum import q4_1, q4_k, q5_1, q5_k
from strata.ops.matvec.decoders.q2_0 import q2_0
from strata.ops.matvec.decoders.q6_k import q6_k
from strata.ops.matvec.decoders.q8_0 import q8_0
from strata.ops.matvec.instructions import dot_16


@triton.constexpr_function
def form(kind):
    """Which contribution of docs/numerics.md a type has: "one", "minimum", "steps" or "halves"."""
    if kind == "NVFP4":
        return "halves"
    if kind == "Q4_1" or kind == "Q5_1" or kind == "Q4_K" or kind == "Q5_K":  # noqa: PLR1714  # Triton reads no "in"
        return "minimum"
    if kind == "Q6_K" or kind == "IQ2_XS" or kind == "IQ2_S" or kind == "IQ1_M":  # noqa: PLR1714
        return "steps"
    return "one"


@triton.jit
def decode(KIND: tl.constexpr, w, table, top, first, at, mask, N, B, L: tl.constexpr):
    """A tile (`strata.ops.matvec.decoders.memory`) of a matrix ``[N, 32 B]`` at ``w``: words 0-3, words 4-7, scales."""
    if KIND == "Q8_0":
        found = q8_0(w, top, first, at, mask, N, B, L)
    elif KIND == "Q2_0":
        found = q2_0(w, top, first, at, mask, N, B, L, 1)
    elif KIND == "Q2_0_128":
        found = q2_0(w, top, first, at, mask, N, B, L, 2)
    elif KIND == "IQ4_NL":
        found = iq4_nl(w, top, first, at, mask, N, B, L)
    elif KIND == "IQ4_XS":
        found = iq4_xs(w, top, first, at, mask, N, B, L)
    elif KIND == "MXFP4":
        found = mxfp4(w, top, first, at, mask, N, B, L)
    elif KIND == "NVFP4":
        found = nvfp4(w, top, first, at, mask, N, B, L)
    elif KIND == "Q4_1":
        found = q4_1(w, top, first, at, mask, N, B, L)
    elif KIND == "Q5_1":
        found = q5_1(w, top, first, at, mask, N, B, L)
    elif KIND == "Q4_K":
        found = q4_k(w, top, first, at, mask, N, B, L)
    elif KIND == "Q5_K":
        found = q5_k(w, top, first, at, mask, N, B, L)
    elif KIND == "Q6_K":
        found = q6_k(w, top, first, at, mask, N, B, L)
    elif KIND == "IQ3_XXS":
        found = iq3_xxs(w, table, top, first, at, mask, N, B, L)
    elif KIND == "IQ3_S":
        found = iq3_s(w, table, top, first, at, mask, N, B, L)
    elif KIND == "IQ2_XS":
        found = iq2_xs(w, table, top, first, at, mask, N, B, L)
    elif KIND == "IQ2_S":
        found = iq2_s(w, table, top, first, at, mask, N, B, L)
    else:
        tl.static_assert(KIND == "IQ1_M", "no such type")
        found = iq1_m(w, table, top, first, at, mask, N, B, L)
    return found


@triton.jit
def contribution(KIND: tl.constexpr, low, high, scales, x_low, x_high, s, z):
    """What the tile's blocks add to their rows, P of docs/numerics.md: float32."""
    SIXTEENFOLD: tl.constexpr = KIND == "Q4_K" or KIND == "Q4_1"  # noqa: PLR1714
    FORM: tl.constexpr = form(KIND)
    first, second = dot_16(low, x_low, False), dot_16(high, x_high, SIXTEENFOLD)
    if KIND == "Q6_K":
        first, second = first >> 2, second >> 2
    if SIXTEENFOLD:
        second = second >> 4
    if FORM == "halves":
        p = (scales[0] * s) * first.to(tl.float32) + (scales[1] * s) * second.to(tl.float32)
    elif FORM == "steps":
        p = (scales[0] * s) * (first * scales[1] + second * scales[2]).to(tl.float32)
    elif FORM == "minimum":
        p = (scales[0] * s) * (first + second).to(tl.float32) + scales[1] * z
    else:
        p = (scales[0] * s) * (first + second).to(tl.float32)
    return p
