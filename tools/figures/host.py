"""The CPU's kernels as bench/experts_pool.py measures them: lists of one type, and experts as a layer meets them."""

import argparse
import sys
from pathlib import Path
from typing import Any

from figures.session import Session
from figures.summary import KINDS
from strata.experts import cpu
from strata.experts.pool import Pool, choose, read

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tests")]

MIXES = (("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), ("IQ4_NL",) * 3, ("Q8_0",) * 3)
"""Gate, up and down: of the released files, and two of one type. Rows of down are too short for blocks of IQ3_XXS."""

REPEATS = 7


def host(session: Session) -> dict[str, Any]:
    """GB/s of weights, one row, all threads; and of layers of 10, 40 and 80 experts of the released shapes."""
    import experts_pool

    threads = choose(read(), None).cpus
    pools = {len(threads): Pool(threads)}
    asked = argparse.Namespace(types=KINDS, megabytes=session.sizes.megabytes, repeats=REPEATS)
    found: dict[str, Any] = {"threads": len(threads), "path": cpu.choose(), "choice": choose(read()).why}
    found["matrices"] = experts_pool.matrices(pools, asked)
    session.keep(found)
    found["layers"] = [cell for mix in MIXES for cell in experts_pool.layers(pools, asked, mix)]
    for pool in pools.values():
        pool.close()
    return found
