"""Tokens per second of Pebble with and without drafts, paired: arms alternate within each round.

    python bench/drafts.py [--rounds 5] [--json bench/results/drafts.json]

The text is compared as well; it must not change.
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

PROMPTS = {
    "counting": ("Count from 1 to 60.", 260),
    "tool-free chat": ("What can you do?", 60),
    "prose": ("The standard library of Python offers", 80),
}
DEPTHS = (0, 1, 2, 3, 5, 7)


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=260, help="most tokens of an answer")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import numpy as np
    import torch

    import strata

    model = strata.load(threads=1)
    speeds: dict[str, dict[int, list[float]]] = {name: {depth: [] for depth in DEPTHS} for name in PROMPTS}
    for _ in range(arguments.rounds):
        for name, (prompt, limit) in PROMPTS.items():
            limit = min(limit, arguments.tokens)  # noqa: PLW2901  # the smaller one
            texts = set()
            for depth in DEPTHS:
                began = time.perf_counter()
                if name == "prose":
                    reply = model.complete(prompt, max_tokens=limit, drafts=depth)
                else:
                    reply = model.chat(prompt, thinking=False, max_tokens=limit, drafts=depth)
                took = time.perf_counter() - began
                texts.add(reply.text)
                speeds[name][depth].append(reply.usage.completion_tokens / took)
            assert len(texts) == 1, "drafts must not change the text"
    rows = []
    for name, arms in speeds.items():
        for depth, values in arms.items():
            ratios = [value / plain for value, plain in zip(values, arms[0], strict=True)]
            rows.append(
                {
                    "text": name,
                    "drafts": depth,
                    "tokens_per_s": round(statistics.median(values), 1),
                    "ratio": round(statistics.median(ratios), 2),
                    "ratio_least": round(min(ratios), 2),
                    "ratio_most": round(max(ratios), 2),
                }
            )
            print(
                f"{name:15} drafts {depth}: {rows[-1]['tokens_per_s']:6.1f} t/s, "
                f"{rows[-1]['ratio']:.2f} x ({rows[-1]['ratio_least']:.2f}-{rows[-1]['ratio_most']:.2f})"
            )
    if arguments.json:
        conditions = {
            "command": f"python bench/drafts.py --rounds {arguments.rounds} --json {arguments.json}",
            "model": "pebble-q8_0.gguf, weights as float32, one thread, prompt reading included in the time",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "rounds": arguments.rounds,
        }
        arguments.json.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
