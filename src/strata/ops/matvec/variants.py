"""Variants of the quantised product.

Two things decide, in numbers of `bench/results/h200-matvec.json`. Programs take 0.65 ns each to start, one after the
other, so a matrix of many rows wants many to a program; and all programs should be on the card at once, which their
registers bound: a tail of a second wave costs as much as the first. What is loaded ahead takes registers.

Microseconds for Q5_K, one row and four:

- 12288 x 2560: `eight` (four tiles, two steps ahead) 6.5 and 9.6; `four` (two tiles, all five steps) 8.1 and 12.4; one
  tile 8.7 and 12.7, and 8.1 and 13.3 with two steps ahead.
- 6144 x 2560: `two-warps` 3.8 and 6.5, `eight` 4.5 and 7.5, one tile 4.9 and 7.7.
- 512 x 2560: one tile, all steps ahead, 1.4 and 4.2; two steps ahead 1.9 and 5.2.
- 2560 x 6144: `long` 3.9 and 6.9; `wide` 4.7 and 7.9.
- Q8_0 320 x 10240: one row to a warp, ten steps ahead, 1.9 and 4.6; five steps ahead 2.8 and 7.9. With several rows a
  program's own instructions are most of that (`wide-ten`), so `wide-pairs` has twice as many programs, each for two
  rows of activations; the weights come from memory once all the same. Not measured.
- Q8_0 10240 x 320: `eights` 2.0 and 2.8; two rows by 16 blocks 6.2 and 6.2.
- Q4_K 248320 x 2560: `four` 84 and 99, `eight` 85 and 106, one tile 151 and 155.
"""

from strata.ops.variants import Tile, Variant

_H200 = "bench/results/h200-matvec.json"
_LONG, _LOW, _TALL, _MANY = (4096, 1 << 30), (1, 8192), (32768, 1 << 30), (8192, 1 << 30)


def _variant(name: str, tile: Tile, why: str, **where: tuple[int, int] | tuple[str, ...] | bool) -> Variant:
    return Variant("matvec", name, tile, why, _H200, **where)  # type: ignore[arg-type]  # fields of Variant by name


_EIGHT = Tile(tiles=4, ahead=2)

VARIANTS: tuple[Variant, ...] = (
    Variant(
        "matvec",
        "interpreted",
        Tile(rows=64),
        "the interpreter pays for programs, not for numbers",
        "0.1 to 5 million weights a second",
        archs=(0,),
    ),
    _variant("eights", Tile(rows=4, tiles=2, step=8, ahead=2), "10 blocks: no more than 6 idle", widths=(32, 512)),
    _variant("short", Tile(rows=8, step=4), "20 blocks in 5 steps of 4: no idle threads", widths=(513, 1024)),
    _variant(
        "wide-pairs",
        Tile(rows=1, step=32, ahead=10, group=2),
        "very few rows: two programs for four rows",
        widths=(8192, 1 << 30),
        outputs=(1, 1024),
    ),
    _variant("wide-ten", Tile(rows=1, step=32, ahead=10), "few, long rows", widths=(8192, 1 << 30), outputs=_LOW),
    _variant("long", Tile(ahead=12), "few, long rows", rows=(1, 1), widths=_LONG, outputs=_LOW),
    _variant(
        "long-several",
        Tile(ahead=12),
        "few, long rows",
        types=("Q4_K", "Q5_K"),
        rows=(1, 4),
        widths=_LONG,
        outputs=_LOW,
    ),
    _variant("wide", Tile(rows=1, step=32, ahead=6), "few, long rows", widths=_LONG, outputs=_LOW),
    _variant("four", Tile(tiles=2), "very many rows", outputs=_TALL),
    _variant("eight", _EIGHT, "many rows: fewer programs", rows=(1, 4), outputs=_MANY),
    _variant("four-short", Tile(tiles=2, ahead=2), "registers", rows=(5, 8), outputs=_MANY),
    _variant("two-warps", Tile(rows=4, warps=2), "fewer programs", outputs=(2048, 8192)),
    _variant("two", Tile(), "few rows: most programs"),
    _variant("four-warps", Tile(rows=8, warps=4), "programs of four warps", default=False),
)
