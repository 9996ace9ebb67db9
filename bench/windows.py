"""What a Pebble window of several rows costs against one of a single row, and what tracing costs.

    python bench/windows.py [--rounds 30] [--json bench/results/windows.json]

One thread, whose CPU time counts, so that other work on the machine disturbs little. Paired: within each round every
kind of window is computed once, on the same text. Rows are consecutive ones of one conversation (as drafts make them)
or one each of several. A window counts with its logits and its commit.
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

SIZES = (1, 2, 3, 4, 6, 8)


def windows(net: Any, text: list[int], rounds: int) -> dict[tuple[str, int], list[float]]:
    """Seconds of windows by kind and size."""
    import torch

    states, times = [net.new_state() for _ in range(8)], {}
    for i, state in enumerate(states):
        net.read(state, text[: 200 + i])

    def window(kind: str, size: int) -> float:
        batch = [(states[i].clone(), [text[200 + i]]) for i in range(size)]
        if kind == "one conversation":
            batch = [(states[0].clone(), text[200 : 200 + size])]
        began = time.thread_time()
        passes = net.window(batch)
        net.logits(torch.cat([done.residual for done in passes])).numpy()
        for (state, ids), done in zip(batch, passes, strict=True):
            net.commit(state, done, len(ids))
        return time.thread_time() - began

    for turn in range(rounds + 1):
        for kind in ("one conversation", "several conversations"):
            for size in SIZES:
                took = window(kind, size)
                if turn:  # the first warms up
                    times.setdefault((kind, size), []).append(took)
    return times


def tracing(net: Any, ids: list[int], rounds: int) -> tuple[float, float]:
    """Seconds to note a window, and how much longer an answer takes with a trace than without, paired."""
    from strata.engine import Generation, Request, Trace, WindowRecord, step

    trace, overheads = Trace(), []
    for turn in range(rounds):
        took = {}
        for on in (False, True) if turn % 2 else (True, False):
            generation = Generation(net, net.new_state(), Request("", tuple(ids), max_tokens=30))
            generation.read()
            began = time.thread_time()
            while not generation.finished:
                step(net, [generation], trace=trace if on else None)
            took[on] = time.thread_time() - began
        overheads.append(took[True] / took[False] - 1)
    began = time.thread_time()
    for _ in range(2000):
        trace.add(WindowRecord(1, 8, 1, {"head": 7}, 3, {}, {}, 0.0, 1.0, 2.0, 3.0, 4.0))
    return (time.thread_time() - began) / 2000, statistics.median(overheads)


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import torch

    import strata

    model = strata.load(threads=1)
    text = model.tokenize("Count from 1 to 300. " + " ".join(str(i) for i in range(1, 300)))
    with torch.inference_mode():
        times = windows(model.network, text, arguments.rounds)
        note, overhead = tracing(model.network, text[:20], arguments.rounds)
    rows = []
    for (kind, size), values in times.items():
        ratio = statistics.median(a / b for a, b in zip(values, times[kind, 1], strict=True))
        milliseconds = round(statistics.median(values) * 1e3, 2)
        rows.append({"rows": kind, "count": size, "ms": milliseconds, "times_one_row": round(ratio, 2)})
        print(f"{kind:22} {size} rows: {milliseconds:6.2f} ms, {ratio:.2f} x one row")
    share = note / statistics.median(times["one conversation", 1])
    print(f"trace: {note * 1e6:.2f} us a window, {share:.3%} of one row; paired {overhead:+.2%}")
    cost = {"note_us": round(note * 1e6, 2), "share_of_one_row": round(share, 5), "paired": round(overhead, 4)}
    if arguments.json:
        conditions = {
            "command": f"python bench/windows.py --rounds {arguments.rounds} --json {arguments.json}",
            "model": "pebble-q8_0.gguf, one thread; 200 tokens before the window",
            "time": "CPU time of the computing thread; the machine did other work",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
        }
        document = {"conditions": conditions, "rows": rows, "trace": cost}
        arguments.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
