"""What keeping conversations gains and costs on Pebble, paired: arms alternate within each round.

    python bench/conversations.py [--rounds 5] [--json bench/results/conversations.json]

Gain: milliseconds to the first token of a second turn with 10 new tokens, when the first is not kept, is in memory, or
is in a file only. Cost: CPU milliseconds of the first turn, kept or not, in the thread that computes it.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

LENGTHS = (256, 512, 1024, 1900)
ARMS = ("nothing kept", "memory", "file")
NEW = 10


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="*", default=LENGTHS)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import numpy as np
    import torch

    import strata

    network = strata.load(threads=1).network
    turn(network, 64, ARMS[0])  # kernels are compiled
    times: dict[tuple[int, str], list[tuple[float, float]]] = {(n, arm): [] for n in arguments.lengths for arm in ARMS}
    for _ in range(arguments.rounds):
        for length in arguments.lengths:
            tokens = set()
            for arm in ARMS:
                first, second, token = turn(network, length, arm)
                times[length, arm].append((first, second))
                tokens.add(token)
            assert len(tokens) == 1, "what is kept must not change the text"
    rows = []
    for (length, arm), values in times.items():
        plain = times[length, ARMS[0]]
        ratios = [p[1] / v[1] for p, v in zip(plain, values, strict=True)]
        costs = [v[0] / p[0] - 1 for p, v in zip(plain, values, strict=True)]
        row = {
            "tokens": length,
            "from": arm,
            "second_turn_ms": round(statistics.median(v[1] for v in values), 1),
            "faster": round(statistics.median(ratios), 1),
            "first_turn_cpu_ms": round(statistics.median(v[0] for v in values), 1),
            "first_turn_cost_percent": round(100 * statistics.median(costs), 1),
        }
        rows.append(row)
        print(
            f"{length:5} tokens, {arm:12}: second turn {row['second_turn_ms']:7.1f} ms, {row['faster']:5.1f} x; "
            f"first turn {row['first_turn_cpu_ms']:7.1f} ms, {row['first_turn_cost_percent']:+.1f}%"
        )
    if arguments.json:
        conditions = {
            "command": f"python bench/conversations.py --rounds {arguments.rounds} --json {arguments.json}",
            "model": "pebble-q8_0.gguf, one thread",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "rounds": arguments.rounds,
        }
        arguments.json.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


def turn(network, length: int, arm: str) -> tuple[float, float, int]:  # noqa: ANN001  # a strata.model.Network
    """CPU milliseconds of the first turn, milliseconds of the second, and the second's token."""
    from strata.engine import Request
    from strata.session.options import Options
    from strata.session.scheduler import Scheduler

    prompt = tuple(3 + i * 7 % 1000 for i in range(length))
    with tempfile.TemporaryDirectory() as folder:
        files = {"folder": Path(folder), "ram": 0, "reserve": 0} if arm == "file" else {}
        scheduler = Scheduler(network, Options(keep=arm != ARMS[0], **files))  # type: ignore[arg-type]
        took, events = [], []
        for name, text in (("first", prompt), ("second", prompt + tuple(range(50, 50 + NEW)))):
            scheduler.submit(Request(name, text, max_tokens=1))
            clock = time.thread_time if name == "first" else time.perf_counter
            began = clock()
            while not scheduler.idle:
                events += scheduler.tick()
            took.append(1e3 * (clock() - began))
            until_written(scheduler)
        scheduler.close()
    return took[0], took[1], events[-2][1].id


def until_written(scheduler) -> None:  # noqa: ANN001  # a Scheduler
    """Wait for the files, which takes place beside the answers."""
    while (store := scheduler._store)._folder and store._folder.pending:  # noqa: SLF001
        time.sleep(0.001)
    scheduler._store.catch_up()  # noqa: SLF001


if __name__ == "__main__":
    main()
