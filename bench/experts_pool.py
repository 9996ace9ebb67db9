"""How fast the worker pool reads weights: GB/s by type and threads, whole experts, and the cost of a barrier.

    python bench/experts_pool.py                              # table, and bench/results/experts_pool.json
    python bench/experts_pool.py --threads 1 4 8 16 --json FILE

Wall time, best of repeats; other programs must not run. Matrices are larger than the last-level cache, so that every
byte comes from memory; a plain read of the same bytes by as many threads is measured beside them.
"""

import argparse
import functools
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "bench")]

from experts_gemv import TYPES, WIDTH, processor, read
from strata.experts import cpu
from strata.experts.compute import Expert, Stored, experts, product
from strata.experts.kernels.cached import task_function
from strata.experts.pool import Machine, Pool, choose
from strata.experts.pool import read as machine
from strata.experts.pool.region import ITEM, work
from strata.formats import by_name

ROWS = (1, 4, 8)
INNER, EXPERTS, TOPK = 640, 512, 10
MIX = ("IQ3_XXS", "IQ3_XXS", "IQ4_NL")


def times(function: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of some calls; the first, which touches memory, is not counted."""
    function()
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        found.append(time.perf_counter() - began)
    return found


def best(function: Callable[[], object], repeats: int) -> float:
    """Seconds of the fastest of some calls."""
    return min(times(function, repeats))


def plain_read(raw: np.ndarray, threads: int) -> Callable[[], None]:
    """A function that reads all bytes with as many threads."""
    words = raw.reshape(-1)[: raw.size // 8 * 8].view(np.uint64)
    borders = np.linspace(0, len(words), threads + 1).astype(int)
    read(words[:8])

    def run() -> None:
        readers = [threading.Thread(target=read, args=(words[a:b],)) for a, b in itertools.pairwise(borders)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    return run


def tiled(name: str, rows: tuple[int, int], some: int = 64) -> np.ndarray:
    """Random blocks, repeated to so many rows of WIDTH (or, for down, INNER) inputs."""
    from support.blocks import random_blocks

    count, width = rows
    blocks = random_blocks(by_name(name), (some, width), np.random.default_rng(0))
    return np.tile(blocks, (-(-count // some), 1))[:count]


def matrices(pools: dict[int, Pool], arguments: argparse.Namespace) -> list[dict[str, object]]:
    """GB/s of one large matrix per type."""
    cells = []
    for name in arguments.types:
        row_bytes = by_name(name).row_bytes(WIDTH)
        raw = tiled(name, (arguments.megabytes * 1_000_000 // row_bytes, WIDTH))
        stored = Stored(by_name(name), raw)
        for threads, pool in pools.items():
            cell: dict[str, Any] = {"type": name, "threads": threads}
            for rows in ROWS:
                x = np.random.default_rng(1).standard_normal((rows, WIDTH)).astype(np.float32)
                took = times(functools.partial(product, pool, stored, x), arguments.repeats)
                cell[f"rounds_{rows}"] = [round(raw.nbytes / seconds / 1e9, 2) for seconds in took]
                cell[f"rows_{rows}"] = max(cell[f"rounds_{rows}"])
            cell["plain_read"] = round(raw.nbytes / best(plain_read(raw, threads), arguments.repeats) / 1e9, 2)
            cells.append(cell)
            print(f"{name:8} {threads:2} threads", *(f"{cell[f'rows_{rows}']:7.1f}" for rows in ROWS),
                  f"   read {cell['plain_read']:6.1f}", flush=True)  # fmt: skip
    return cells


def layers(
    pools: dict[int, Pool], arguments: argparse.Namespace, mix: tuple[str, ...] = MIX
) -> list[dict[str, object]]:
    """Microseconds and GB/s of a layer's experts in a window of T rows that all go elsewhere.

    Args:
        pools: by their threads.
        arguments: megabytes and repeats.
        mix: types of gate, up and down.
    """
    shapes = ((INNER, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    count = min(EXPERTS, max(2 * TOPK * max(ROWS), arguments.megabytes // 2))
    raws = [tiled(name, (count * n, k)).reshape(count, n, -1) for name, (n, k) in zip(mix, shapes, strict=True)]
    layer = Expert(*(Stored(by_name(name), raw) for name, raw in zip(mix, raws, strict=True)))
    each = sum(raw.nbytes for raw in raws) / count
    cells = []
    for threads, pool in pools.items():
        for rows in ROWS:
            rng = np.random.default_rng(2)
            x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
            routes = iter([rng.permutation(count)[: rows * TOPK].reshape(rows, TOPK) for _ in range(400)])
            weights = np.full((rows, TOPK), 0.1, np.float32)
            took_each = []
            for _ in range(min(390, 10 * arguments.repeats)):
                route = next(routes)
                began = time.perf_counter()
                experts(pool, layer, x, route, weights)
                took_each.append(time.perf_counter() - began)
            took = float(np.median(took_each))
            cell = {
                "mix": "/".join(mix),
                "threads": threads,
                "rows": rows,
                "experts": rows * TOPK,
                "microseconds": round(took * 1e6, 1),
                "gb_per_s": round(rows * TOPK * each / took / 1e9, 2),
            }
            cells.append(cell)
            speed = f"{cell['microseconds']:8.1f} us, {cell['gb_per_s']:6.1f} GB/s"
            print(f"experts  {threads:2} threads, {rows} rows: {speed}", flush=True)
    return cells


def barriers(pools: dict[int, Pool]) -> list[dict[str, object]]:
    """Microseconds of a list of items that do nothing, one for each thread: publish, take, and wait."""
    from strata.experts.kernels.cached import compiled

    def nothing(task: int, first: int, last: int) -> int:  # noqa: ARG001
        return 0

    def repeat(state: int, items: int, count: int, times: int) -> int:
        failed = 0
        for _ in range(times):
            failed = failed | work(state, items, count)
        return failed

    code, run = task_function(nothing), compiled(repeat, "int64(int64, int64, int64, int64)")
    cells = []
    for threads, pool in pools.items():
        items = np.zeros((max(2, threads), ITEM // 8), np.int64)
        items[:, 0] = code.address
        took = best(functools.partial(pool.run, run, items.ctypes.data, len(items), 1000), 20)
        cells.append({"threads": threads, "microseconds": round(took * 1e3, 3)})
        print(f"barrier  {threads:2} threads: {took * 1e3:6.2f} us")
    return cells


def main() -> int:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", default=[name for name in TYPES if name not in {"BF16", "F32"}])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    here: Machine = machine()
    load = os.getloadavg()[0]
    pools = {threads: Pool(choose(here, threads).cpus) for threads in arguments.threads}
    print("GB/s of weights for", *ROWS, "rows")
    facts = {
        "command": "python bench/experts_pool.py " + " ".join(sys.argv[1:]),
        "processor": processor(),
        "path": cpu.choose(),
        "cpus": len(here.cpus),
        "choice": choose(here).why,
        "load_before": round(load, 1),
        "clock": "wall time, best of repeats; of experts the median",
        "megabytes": arguments.megabytes,
        "versions": {name: version(name) for name in ("numpy", "numba", "llvmlite")},
        "barriers": barriers(pools),
        "experts": layers(pools, arguments),
        "matrices": matrices(pools, arguments),
    }
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
