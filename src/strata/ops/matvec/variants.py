"""Variants of the quantised product."""

from strata.ops.variants import Tile, Variant

_UNMEASURED = "not measured yet"

VARIANTS: tuple[Variant, ...] = (
    Variant("matvec", "interpreted", Tile(rows=64), "the interpreter pays for programs and steps, not for numbers",
            "0.1 to 5 million weights a second", archs=(0,)),
    Variant("matvec", "short-four", Tile(rows=8, four=True), "rows of 20 blocks in 5 steps of 4: no idle threads",
            _UNMEASURED, widths=(128, 1024)),
    Variant("matvec", "two", Tile(), "two rows to a warp: most programs, for few rows or long ones", _UNMEASURED),
    Variant("matvec", "four", Tile(tiles=2), "four rows to a warp: activations loaded once for two tiles", _UNMEASURED,
            default=False),
    Variant("matvec", "two-unrolled", Tile(unroll=4), "two rows to a warp, four steps in flight", _UNMEASURED,
            default=False),
)  # fmt: skip
