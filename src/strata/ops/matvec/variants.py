"""Variants of the quantised product.

Why, in numbers of `bench/results/h200-matvec.json`: microseconds for 2560 x 8192, or times over all types with the
best tile of each cell as 1.

- `wide`, `wide-two`: a matrix of few, long rows cannot fill a card two rows to a warp. One row to a warp and 64
  blocks in flight: IQ3_XXS 9.5 us against 14.3, IQ4_NL 7.0 against 7.7. For Q8_0 and one row of activations 32 are
  enough: 7.7.
- `four`: activations are loaded once for two tiles, and there are half as many programs to start. 1.00 for 248320 x
  2560, where two rows to a warp take 1.19; 1.03 against 1.06 for one row and 8192 x 2560.
- `two`: 1.02 for four rows and 8192 x 2560, where `four` takes 1.07: more warps.
- `two-unrolled`: 1.07 for one row, 1.33 for four, which need the registers. `four-warps`: 1.12 and 1.14.
"""

from strata.ops.variants import Tile, Variant

_H200 = "bench/results/h200-matvec.json"
_LONG, _LOW, _TALL = (4096, 1 << 30), (1, 8192), (32768, 1 << 30)


def _variant(name: str, tile: Tile, why: str, **where: tuple[int, int] | tuple[str, ...] | bool) -> Variant:
    return Variant("matvec", name, tile, why, _H200, **where)  # type: ignore[arg-type]  # fields of Variant by name


VARIANTS: tuple[Variant, ...] = (
    Variant(
        "matvec",
        "interpreted",
        Tile(rows=64),
        "the interpreter pays for programs, not for numbers",
        "0.1 to 5 million weights a second",
        archs=(0,),
    ),
    Variant("together", "interpreted", Tile(rows=64), "as there", "as there", archs=(0,)),
    Variant("together", "four-alone", Tile(tiles=2), "as one matrix of many rows", _H200, rows=(1, 1)),
    Variant("together", "two", Tile(), "as one matrix of many rows", _H200),
    _variant("short", Tile(rows=8, step=4), "20 blocks in 5 steps of 4: no idle threads", widths=(128, 1024)),
    _variant("wide", Tile(rows=1, step=32), "few, long rows", types=("Q8_0",), rows=(1, 1), widths=_LONG, outputs=_LOW),
    _variant("wide-two", Tile(rows=1, step=32), "few, long rows", widths=_LONG, outputs=_LOW),
    _variant("four", Tile(tiles=2), "many rows: fewer programs", outputs=_TALL),
    _variant("four-alone", Tile(tiles=2), "one row: activations loaded once for two tiles", rows=(1, 1)),
    _variant("two", Tile(), "several rows: more warps"),
    _variant("two-plain", Tile(ahead=1), "each step waits for its weights", default=False),
    _variant("four-warps", Tile(rows=8, warps=4), "programs of four warps", default=False),
)
