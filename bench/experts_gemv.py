"""How fast quantised matrices are multiplied: GB/s of weights by type, processor family, rows and threads.

Matrices are larger than the last-level cache. Rates are per second of the threads' own processor time, summed over the
threads, so that a machine shared with others can be measured at all; what others do to caches, memory and shared cores
remains in the numbers. A plain read of the same memory is measured in turn with every cell; trust the ratio to it, and
ratios within a table, before the rates. Every family runs in a process of its own that compiles for a processor which
has nothing better.

    python bench/experts_gemv.py                           # table, and bench/results/experts_gemv.json
    python bench/experts_gemv.py --types IQ3_XXS --keep no # some types; writes nothing
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numba import njit

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from strata.experts import cpu, judge
from strata.experts.kernels import floats, kernel
from strata.experts.kernels.task import run_rows
from strata.formats import by_name

RESULT = Path(__file__).parent / "results" / "experts_gemv.json"
TYPES = (
    *("Q8_0", "Q6_K", "Q5_1", "Q5_K", "Q4_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"),
    *("IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS", "Q2_0", "IQ1_M", "BF16", "F32"),
)
OLDER = {
    "avxvnni": ("alderlake", "+avx2,+f16c,+fma,+bmi,+bmi2,+avxvnni"),
    "avx2": ("haswell", "+avx2,+f16c,+fma,+bmi,+bmi2"),
    "plain": ("nehalem", "+sse4.2"),
}
WIDTH = 2560


@njit(nogil=True)
def read(words: np.ndarray) -> int:
    """Sum of 64-bit words: nothing but reading."""
    total = np.uint64(0)
    for word in words:
        total += word
    return total


def rate(work: Callable[[int, int, int], None], rows: int, threads: int, row_bytes: int, repeats: int) -> float:
    """GB/s: the sum over threads of bytes per second of the thread's own time, each thread's best of ``repeats``."""
    best = [float("inf")] * threads
    borders = np.linspace(0, rows, threads + 1).astype(int)
    together = threading.Barrier(threads)

    def run(i: int) -> None:
        for _ in range(repeats):
            together.wait()
            began = time.thread_time()
            work(i, int(borders[i]), int(borders[i + 1]))
            best[i] = min(best[i], time.thread_time() - began)

    workers = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return float(sum((borders[i + 1] - borders[i]) * row_bytes / best[i] / 1e9 for i in range(threads)))


def product(name: str, path: str, raw: np.ndarray, rows: int) -> Callable[[int, int, int], None]:
    """The kernel on random activations, as a function of thread, first and last row."""
    x = np.random.default_rng(1).standard_normal((rows, WIDTH)).astype(np.float32)
    out = np.empty((rows, len(raw)), dtype=np.float32)
    if name in {"BF16", "F32"}:
        code = floats.float_kernel(name, path)
        return lambda _, first, last: run_rows(code, raw, WIDTH, x, out, (first, last))
    ready = kernel(by_name(name), path)
    records = ready.arrange(*judge.quantise_rows(x))
    return lambda _, first, last: ready.run(raw, records, out, first, last)


def plain_read(raw: np.ndarray) -> Callable[[int, int, int], None]:
    """Reading the same rows and doing nothing with them, as a function of thread, first and last row."""
    row_bytes = raw.shape[1]
    words = raw.reshape(-1)[: raw.size // 8 * 8].view(np.uint64)
    read(words[:8])  # compiles
    return lambda _, first, last: read(words[first * row_bytes // 8 : last * row_bytes // 8])


def measure(path: str, arguments: argparse.Namespace) -> list[dict[str, object]]:
    """All cells of one family."""
    from support.blocks import random_blocks

    cells = []
    repeats = arguments.repeats
    for name in arguments.types:
        kind = by_name(name)
        row_bytes = kind.row_bytes(WIDTH)
        some = random_blocks(kind, (64, WIDTH), np.random.default_rng(0))
        raw = np.tile(some, (-(-arguments.megabytes * 1_000_000 // some.nbytes), 1))
        reading = plain_read(raw)
        for threads in arguments.threads:
            for rows in (1, 2, 4, 8):
                work = product(name, path, raw, rows)
                speed = rate(work, len(raw), threads, row_bytes, repeats)
                plain = rate(reading, len(raw), threads, row_bytes, repeats)
                cells.append(
                    {
                        "type": name, "path": path, "threads": threads, "rows": rows,
                        "gb_per_s": round(speed, 2), "read_gb_per_s": round(plain, 2),
                    }
                )  # fmt: skip
    return cells


def processor() -> str:
    """The processor's name as the kernel reports it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def collect(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Run every family this processor has in a process of its own."""
    cells: list[dict[str, object]] = []
    for path in arguments.paths or cpu.paths():
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        if path in OLDER:
            environment |= dict(zip(("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), OLDER[path], strict=True))
        command = [sys.executable, __file__, "--child", path, "--megabytes", str(arguments.megabytes)]
        command += [
            "--threads",
            *map(str, arguments.threads),
            "--repeats",
            str(arguments.repeats),
            "--types",
            *arguments.types,
        ]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        found = json.loads(done.stdout)
        cells += found
        for name in arguments.types:
            mine = [cell for cell in found if cell["type"] == name]
            print(f"{path:11} {name:8}", *(f"{cell['gb_per_s']:6.1f}" for cell in mine), "  read",
                  *(f"{cell['read_gb_per_s']:5.1f}" for cell in mine[::4]), flush=True)  # fmt: skip
    return cells


def main() -> int:
    """Measure and keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", default=list(TYPES))
    parser.add_argument("--paths", nargs="+")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--megabytes", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--keep", choices=["yes", "no"], default="yes")
    parser.add_argument("--child", metavar="PATH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments)))
        return 0
    print("GB/s for T = 1, 2, 4, 8 rows, for each of threads =", *arguments.threads)
    load = os.getloadavg()[0]
    cells = collect(arguments)
    if arguments.keep == "yes":
        facts = {
            "command": "python bench/experts_gemv.py " + " ".join(sys.argv[1:]),
            "processor": processor(),
            "cpus": len(os.sched_getaffinity(0)),
            "load_before_and_after": [round(load, 1), round(os.getloadavg()[0], 1)],
            "clock": "processor time of each thread, best of repeats, summed over threads",
            "megabytes": arguments.megabytes,
            "repeats": arguments.repeats,
            "versions": {name: version(name) for name in ("numpy", "numba", "llvmlite")},
            "cells": cells,
        }
        RESULT.write_text(json.dumps(facts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
