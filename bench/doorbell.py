"""How long a layer's round through the host takes: from a message to its answer, with a stand-in for the device.

    python bench/doorbell.py [--threads 1] [--rounds 20000] [--json bench/results/doorbell.json]

The device's half is a compiled loop in a thread of its own (`strata.lab.doorbell`), so what is measured is the words,
the host's loop, and its work; a link is not. "empty" has the smallest experts there are: the protocol's own time. Both
threads look all the time, so medians mean something only where each has a processor for itself.
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from strata.experts.compute import Expert, Stored
from strata.experts.misses import HostLoop, Mailbox
from strata.formats import by_name
from strata.lab import doorbell
from strata.lab.doorbell import Deck

SHAPES = {
    "empty": (("Q8_0", "Q8_0", "Q8_0"), 32, 32, 1),
    "Pebble": (("IQ3_S", "IQ3_S", "Q8_0"), 256, 128, 2),
    "released": (("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), 2560, 640, 10),
}
"""Types of gate, up and down; H; I; topk."""

CARDS = 32
EXPERTS = 48
LAYERS = 2


def layers(kinds: tuple[str, str, str], hidden: int, inner: int, rng: np.random.Generator) -> list[Expert]:
    """Layers of random bytes with small scales: what they compute is of no interest."""
    found = []
    for _ in range(LAYERS):
        parts = []
        for name, shape in zip(kinds, ((inner, hidden), (inner, hidden), (hidden, inner)), strict=True):
            kind = by_name(name)
            blocks = shape[1] // kind.weights
            raw = rng.integers(0, 256, (EXPERTS, shape[0], blocks, kind.bytes), dtype=np.uint8)
            raw[..., :2] = np.frombuffer(np.float16(1e-3).tobytes(), np.uint8)
            parts.append(Stored(kind, raw.reshape(EXPERTS, shape[0], -1)))
        found.append(Expert(*parts))
    return found


def deck(mailbox: Mailbox, missing: int, rows: int, rng: np.random.Generator) -> Deck:
    """Messages in which so many experts are missing, each of one row."""
    made = Deck.empty(mailbox, CARDS)
    for at in range(CARDS):
        q = rng.integers(-127, 128, (rows, mailbox.hidden)).astype(np.int8)
        s = np.full((rows, mailbox.hidden // 32), 1e-3, np.float32)
        pairs = [pair for t in range(rows) for pair in range(t * mailbox.topk, (t + 1) * mailbox.topk)]
        experts = rng.permutation(EXPERTS)[:missing].tolist()
        made.write(at, at % LAYERS, q, s, [(e, [pairs[i]]) for i, e in enumerate(experts)])
    made.pairs[:] = False  # nothing is compared: the bytes are the tests' matter
    return made


def measure(name: str, missing: int, rows: int, threads: int, rounds: int) -> dict[str, object]:
    """One cell."""
    kinds, hidden, inner, topk = SHAPES[name]
    rng, mailbox = np.random.default_rng(1), Mailbox(topk, hidden)
    memory = np.zeros(mailbox.nbytes + 512, np.uint8)
    start = -memory.ctypes.data % 512
    box = memory[start : start + mailbox.nbytes]
    loop = HostLoop(mailbox, box, layers(kinds, hidden, inner, rng), (None,) * threads)
    cards = deck(mailbox, missing, rows, rng)
    loop.start()
    try:
        order = rng.integers(0, CARDS, rounds)
        doorbell.run(box, cards, order[: rounds // 10])
        before = loop.stats()
        wrong, times = doorbell.run(box, cards, order)
        after = loop.stats()
    finally:
        loop.close()
    if wrong:
        raise SystemExit(f"the host did not answer ({wrong}): {loop.fault()}")
    busy = (after.busy_s - before.busy_s) / rounds * 1e6
    return {
        "shape": name, "missing": missing, "rows": rows, "threads": threads, "rounds": rounds,
        "median_us": round(float(np.median(times)) / 1e3, 2), "p99_us": round(float(np.quantile(times, 0.99)) / 1e3, 2),
        "max_us": round(float(times.max()) / 1e3, 1), "host_us": round(busy, 2),
        "gb_s": round((after.nbytes - before.nbytes) / max(1e-9, after.busy_s - before.busy_s) / 1e9, 2),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=20_000)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    cells = [
        ("empty", 1, 1),
        ("Pebble", 1, 1),
        ("Pebble", 2, 1),
        ("released", 1, 1),
        ("released", 5, 1),
        ("released", 20, 4),
    ]
    found = []
    for name, missing, rows in cells:
        rounds = chosen.rounds if name != "released" else max(50, chosen.rounds // 40)
        found.append(measure(name, missing, rows, chosen.threads, rounds))
        print(found[-1], flush=True)
    if chosen.json:
        conditions = {
            "processor": platform.processor() or platform.machine(), "cpus": os.cpu_count(),
            "load": os.getloadavg()[0], "threads": chosen.threads,
        }  # fmt: skip
        chosen.json.write_text(
            json.dumps({"conditions": conditions, "cells": found}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
