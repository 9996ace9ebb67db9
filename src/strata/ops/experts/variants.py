"""Variants of the grouped experts' products."""

from strata.ops.variants import Tile, Variant

_UNMEASURED = "not measured yet"

VARIANTS: tuple[Variant, ...] = (
    Variant("experts.gate_up", "interpreted", Tile(rows=64), "see the quantised product", "as there", archs=(0,)),
    Variant("experts.down", "interpreted", Tile(rows=64), "see the quantised product", "as there", archs=(0,)),
    Variant("experts.gate_up", "two", Tile(), "two rows of gate and of up to a warp", _UNMEASURED),
    Variant("experts.gate_up", "four", Tile(tiles=2), "four rows of each to a warp", _UNMEASURED, default=False),
    Variant("experts.down", "four-steps", Tile(rows=8, four=True), "eight rows to a warp, rows of 20 blocks in 5 steps",
            _UNMEASURED, widths=(128, 1024)),
    Variant("experts.down", "two", Tile(), "two rows to a warp, steps of 16 blocks", _UNMEASURED),
)  # fmt: skip
