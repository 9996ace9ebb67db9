"""From planes to the bytes of weights: one function for every block type, and what all of them share.

A decoder gives the eight words of each block of a tile as two tuples of four, and a tuple of scales that depends on
the type's form (docs/numerics.md). Words may be a power of two too large; `contribution` takes that out of the sums,
exactly.
"""

import triton
import triton.language as tl

from strata.ops.matvec.decoders.grids import (
    fetch_iq1_m,
    fetch_iq2_s,
    fetch_iq2_xs,
    fetch_iq3_s,
    fetch_iq3_xxs,
    iq1_m,
    iq2_s,
    iq2_xs,
    iq3_s,
    iq3_xxs,
    lexicon_iq3_xxs,
)  # fmt: skip
from strata.ops.matvec.decoders.levels import (
    fetch_iq4_nl,
    fetch_iq4_xs,
    fetch_mxfp4,
    fetch_nvfp4,
    iq4_nl,
    iq4_xs,
    mxfp4,
    nvfp4,
)  # fmt: skip
from strata.ops.matvec.decoders.memory import place
from strata.ops.matvec.decoders.minimum import (
    fetch_q4_1,
    fetch_q4_k,
    fetch_q5_1,
    fetch_q5_k,
    q4_1,
    q4_k,
    q5_1,
    q5_k,
)  # fmt: skip
from strata.ops.matvec.decoders.q2_0 import fetch_q2_0, q2_0
from strata.ops.matvec.decoders.q6_k import fetch_q6_k, q6_k
from strata.ops.matvec.decoders.q8_0 import fetch_q8_0, q8_0
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
def fetch(KIND: tl.constexpr, w, size, here, OFF: tl.constexpr, L: tl.constexpr, EVEN: tl.constexpr):
    """What a tile's blocks are in memory, loaded and nothing more; see `decoders.memory` for the arguments.

    ``size`` is the number of blocks of the matrix, ``w`` a byte pointer to its planes.
    """
    if KIND == "Q8_0":
        raw = fetch_q8_0(w, size, here, OFF, L, EVEN)
    elif KIND == "Q2_0":
        raw = fetch_q2_0(w, size, here, OFF, L, EVEN, 1)
    elif KIND == "Q2_0_128":
        raw = fetch_q2_0(w, size, here, OFF, L, EVEN, 2)
    elif KIND == "IQ4_NL":
        raw = fetch_iq4_nl(w, size, here, OFF, L, EVEN)
    elif KIND == "IQ4_XS":
        raw = fetch_iq4_xs(w, size, here, OFF, L, EVEN)
    elif KIND == "MXFP4":
        raw = fetch_mxfp4(w, size, here, OFF, L, EVEN)
    elif KIND == "NVFP4":
        raw = fetch_nvfp4(w, size, here, OFF, L, EVEN)
    elif KIND == "Q4_1":
        raw = fetch_q4_1(w, size, here, OFF, L, EVEN)
    elif KIND == "Q5_1":
        raw = fetch_q5_1(w, size, here, OFF, L, EVEN)
    elif KIND == "Q4_K":
        raw = fetch_q4_k(w, size, here, OFF, L, EVEN)
    elif KIND == "Q5_K":
        raw = fetch_q5_k(w, size, here, OFF, L, EVEN)
    elif KIND == "Q6_K":
        raw = fetch_q6_k(w, size, here, OFF, L, EVEN)
    elif KIND == "IQ3_XXS":
        raw = fetch_iq3_xxs(w, size, here, OFF, L, EVEN)
    elif KIND == "IQ3_S":
        raw = fetch_iq3_s(w, size, here, OFF, L, EVEN)
    elif KIND == "IQ2_XS":
        raw = fetch_iq2_xs(w, size, here, OFF, L, EVEN)
    elif KIND == "IQ2_S":
        raw = fetch_iq2_s(w, size, here, OFF, L, EVEN)
    else:
        tl.static_assert(KIND == "IQ1_M", "no such type")
        raw = fetch_iq1_m(w, size, here, OFF, L, EVEN)
    return raw


@triton.jit
def lexicon(KIND: tl.constexpr, table, SIZE: tl.constexpr):
    """What `unpack` looks up in, made ready once for tiles of so many blocks."""
    if KIND == "IQ3_XXS":
        found = lexicon_iq3_xxs(table, SIZE)
    else:
        found = table
    return found


@triton.jit
def unpack(KIND: tl.constexpr, raw, table, here):
    """What `fetch` loaded as weights, with the type's `lexicon` for a table: words 0-3, words 4-7, scales."""
    if KIND == "Q8_0":
        found = q8_0(raw)
    elif KIND == "Q2_0":
        found = q2_0(raw)
    elif KIND == "Q2_0_128":
        found = q2_0(raw)
    elif KIND == "IQ4_NL":
        found = iq4_nl(raw)
    elif KIND == "IQ4_XS":
        found = iq4_xs(raw)
    elif KIND == "MXFP4":
        found = mxfp4(raw)
    elif KIND == "NVFP4":
        found = nvfp4(raw)
    elif KIND == "Q4_1":
        found = q4_1(raw)
    elif KIND == "Q5_1":
        found = q5_1(raw)
    elif KIND == "Q4_K":
        found = q4_k(raw)
    elif KIND == "Q5_K":
        found = q5_k(raw)
    elif KIND == "Q6_K":
        found = q6_k(raw)
    elif KIND == "IQ3_XXS":
        found = iq3_xxs(raw, table, here)
    elif KIND == "IQ3_S":
        found = iq3_s(raw, table, here)
    elif KIND == "IQ2_XS":
        found = iq2_xs(raw, table, here)
    elif KIND == "IQ2_S":
        found = iq2_s(raw, table)
    else:
        found = iq1_m(raw, table)
    return found


@triton.jit
def decode(KIND: tl.constexpr, w, table, top, first, at, mask, N, B, L: tl.constexpr):
    """A tile of a matrix ``[N, 32 B]`` at once: words 0-3, words 4-7, scales.

    ``at``, numbers of its blocks, says only how many there are; with a ``mask``, blocks behind a row's end are zeros.
    """
    H: tl.constexpr = at.shape[0] // L
    here = place(top, first, N, B, H, L)
    return unpack(KIND, fetch(KIND, w, N * B, here, 0, L, mask is None), lexicon(KIND, table, H * L), here)


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
