"""What the bookkeeping of expert slots costs the host in a window of the real model's size.

    python bench/slots.py [--windows 1000] [--json bench/results/slots.json]

48 layers of 512 experts, 8,000 slots, windows of 48 x 30 visits with made-up routing. One thread, whose CPU time counts,
so that other work on the machine disturbs little.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

L, E, SLOTS, VISITS = 48, 512, 8000, 30


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import numba
    import numpy as np

    from strata.memory.slots import SlotCache

    random = np.random.default_rng(1)
    popular = random.permuted(np.tile(1 / np.arange(3, E + 3), (L, 1)), axis=1)
    windows = []
    for _ in range(200):
        chosen = (popular / random.exponential(size=popular.shape)).argsort(1)[:, -VISITS:]
        windows.append(np.stack([np.repeat(np.arange(L), VISITS), chosen.ravel()], 1).astype(np.int32))
    rows = []
    for classes in (1, 4):
        for most in (4, 16):
            cache = SlotCache([1] * classes, [i % classes for i in range(L)], [SLOTS // classes] * classes, experts=E)
            for move in cache.moves(SLOTS):
                cache.begin(move)
                cache.landed(move)
            times: dict[str, list[float]] = {"seen": [], "moves": [], "both": [], "begin and landed": []}
            moved = 0
            for number in range(arguments.windows):
                visits = windows[number % len(windows)]
                a = time.thread_time()
                cache.seen(visits)
                b = time.thread_time()
                moves = cache.moves(most)
                c = time.thread_time()
                for move in moves:
                    cache.begin(move)
                for move in moves:
                    cache.landed(move)
                d = time.thread_time()
                moved += len(moves)
                for name, seconds in zip(times, (b - a, c - b, c - a, d - c), strict=True):
                    times[name].append(seconds * 1e6)
            row = {"classes": classes, "most": most, "moves": round(moved / arguments.windows, 1)}
            for name, each in times.items():
                row[name + " us"] = {
                    "median": round(statistics.median(each), 1),
                    "p90": round(sorted(each)[len(each) * 9 // 10], 1),
                }
            rows.append(row)
            print(row)
    if arguments.json:
        result = {
            "command": "python bench/slots.py " + " ".join(sys.argv[1:]),
            "machine": platform.processor() or platform.machine(),
            "load": os.getloadavg()[0],
            "versions": {"python": platform.python_version(), "numpy": np.__version__, "numba": numba.__version__},
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
