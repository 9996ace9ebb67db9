"""What the bookkeeping of expert slots costs the host in a window of the real model's size.

    python bench/slots.py [--windows 1000] [--json bench/results/slots.json]

48 layers of 512 experts, 3,000 and 8,000 slots, made-up routing (`strata.lab.routing`) in windows of four rows, which
visit 48 x 30 experts. One thread, whose CPU time counts, so that other work on the machine disturbs little.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

L, E = 48, 512
MOST = 16


def measured(cache: Any, windows: list[Any], most: int) -> tuple[dict[str, list[float]], int]:
    """Microseconds of each window by part, and moves in all."""
    times: dict[str, list[float]] = {"seen": [], "moves": [], "both": [], "begin and landed": []}
    moved = 0
    for each in windows:
        a = time.thread_time()
        cache.seen(each)
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
    return times, moved


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import numba
    import numpy as np

    from strata.lab.routing.generator import Routing
    from strata.lab.routing.windows import windows
    from strata.memory.slots import SlotCache

    windows_seen = [*windows(Routing().rows(4 * arguments.windows), 4, E)]
    rows = []
    for slots in (3000, 8000):
        for classes in (1, 4):
            cache = SlotCache([1] * classes, [i % classes for i in range(L)], [slots // classes] * classes, experts=E)
            for each in windows_seen[:100]:
                cache.seen(each)
            for move in cache.moves(slots):
                cache.begin(move)
                cache.landed(move)
            times, moved = measured(cache, windows_seen, MOST)
            row = {"slots": slots, "classes": classes, "moves": round(moved / len(windows_seen), 1)}
            for name, each in times.items():
                row[name + " us"] = {
                    "median": round(statistics.median(each), 1),
                    "lowest": round(min(each), 1),
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
