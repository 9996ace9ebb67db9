"""Choosing variants: pure tables."""

import pytest

from strata.errors import ConfigError
from strata.ops.experts.variants import VARIANTS as EXPERTS
from strata.ops.matvec.variants import VARIANTS as MATVEC
from strata.ops.planes import LAYOUTS
from strata.ops.variants import Tile, Variant, resolve

OLD = Variant("op", "old", Tile(), "for old cards", "nowhere", archs=(75,))
WIDE = Variant("op", "wide", Tile(), "for long rows", "nowhere", widths=(4096, 1 << 30))
ASKED = Variant("op", "asked", Tile(tiles=2), "slower", "nowhere", types=("Q8_0",), default=False)
PLAIN = Variant("op", "plain", Tile(), "everything else", "nowhere", rows=(1, 8))
TABLE = (OLD, WIDE, ASKED, PLAIN)


@pytest.mark.parametrize(
    ("arch", "kind", "rows", "width", "choice", "found"),
    [
        (75, "Q8_0", 1, 256, None, OLD),
        (86, "Q8_0", 1, 256, None, PLAIN),
        (86, "Q8_0", 8, 8192, None, WIDE),
        (86, "Q8_0", 8, 8192, "plain", PLAIN),
        (86, "Q8_0", 1, 256, "asked", ASKED),
    ],
)
def test_the_first_that_fits_unless_asked(arch, kind, rows, width, choice, found):
    assert resolve(TABLE, "op", arch, kind, rows, width, 64, choice) is found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((86, "Q4_K", 1, 256, 64, "asked"), r"asked.*Q4_K.*plain"),
        ((86, "Q8_0", 1, 256, 64, "new"), r"'new'.*asked, plain"),
        ((86, "Q8_0", 9, 256, 64), "9 rows"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, words):
    with pytest.raises(ConfigError, match=words):
        resolve(TABLE, "op", *arguments)


@pytest.mark.parametrize("table", [MATVEC, EXPERTS], ids=["matvec", "experts"])
def test_every_launch_has_a_variant(table):
    names = [(variant.op, variant.name) for variant in table]
    assert len(set(names)) == len(names)
    for op in {variant.op for variant in table}:
        for arch in (0, 75, 80, 86, 89, 90, 120):
            for kind in LAYOUTS:
                for rows in range(1, 9):
                    for width in (64, 256, 640, 2560, 8192):
                        for outputs in (32, 2560, 248320):
                            assert resolve(table, op, arch, kind, rows, width, outputs).exact
