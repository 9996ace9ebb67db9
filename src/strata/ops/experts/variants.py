"""Variants of the grouped experts' products.

Microseconds on an H200 (`bench/results/h200-matvec.json`), 10 experts for one row and 30 for four:

- gate and up, four rows: `two-warps` IQ3_XXS 32.3, Q8_0 29.1; `two` 33.4 and 31.4; `four` 35.1 and 29.1. One row: `two`
  13.4 and 11.8. Two warps to a program are half as many programs to start.
- down: `short` IQ4_NL 6.0 and 13.9, Q8_0 7.7 and 17.8; `short-warps` IQ4_NL 7.1 and 14.3; `two` 15.7 and 53.
"""

from strata.ops.variants import Tile, Variant

_H200 = "bench/results/h200-matvec.json"
_GATE_UP, _DOWN = "experts.gate_up", "experts.down"
_SHORT = (128, 1024)

VARIANTS: tuple[Variant, ...] = (
    Variant(_GATE_UP, "interpreted", Tile(rows=64), "see the quantised product", "as there", archs=(0,)),
    Variant(_DOWN, "interpreted", Tile(rows=64), "see the quantised product", "as there", archs=(0,)),
    Variant(_GATE_UP, "two", Tile(), "one row: most warps", _H200, rows=(1, 1)),
    Variant(_GATE_UP, "two-warps", Tile(rows=4, warps=2), "several rows: half as many programs", _H200),
    Variant(_GATE_UP, "four", Tile(tiles=2), "activations loaded once for two tiles", _H200, default=False),
    Variant(
        _DOWN,
        "short-warps",
        Tile(rows=16, warps=2, step=4),
        "20 blocks in 5 steps of 4: no idle threads",
        _H200,
        widths=_SHORT,
    ),
    Variant(
        _DOWN,
        "short",
        Tile(rows=8, step=4),
        "twice as many programs",
        _H200,
        widths=_SHORT,
        default=False,
    ),
    Variant(_DOWN, "two", Tile(), "any width", _H200),
)
