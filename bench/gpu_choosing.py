"""Choosing, guessing and attention over cells in eight bits on a GPU: microseconds, each by itself as a recorded graph.

What is looked at, drawn and decided, of 1, 4 and 8 rows of a vocabulary of 248,320; attention of a window at the
released model's shape, bfloat16 against q8, behind conversations of several lengths. And chains of guesses of Pebble
against their steps one by one, wall time. Arms alternate; medians of rounds.

    python bench/gpu_choosing.py --json bench/results/gpu-choosing.json
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src")]

import numpy as np
import torch

from strata.model.candidates import RowWish, Touched, Wish
from strata.model.decision import Drawn, Greedy
from strata.ops import dependent
from strata.ops.gpu.choice import Choice
from strata.ops.gpu.look import Look
from strata.ops.qsa import gpu as qsa

DEVICE = torch.device("cuda")
V, ROUNDS, REPEATS = 248_320, 7, 50
NH, NKV, HD, RATIO, BUDGET, PAGE = 24, 2, 256, 4, 512, 64


def recorded(body: Callable[[], None]) -> torch.cuda.CUDAGraph:
    """`body`, several times over in one graph."""
    body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            body()
    return graph


def compared(arms: dict[str, Callable[[], None]]) -> dict[str, float]:
    """Microseconds of one run of each, arms in turn."""
    graphs = {name: recorded(body) for name, body in arms.items()}
    times: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            first.record()
            graph.replay()
            last.record()
            torch.cuda.synchronize()
            times[name].append(first.elapsed_time(last) * 1e3 / REPEATS)
    return {name: round(statistics.median(found), 2) for name, found in times.items()}


def choosing(rows: int) -> dict[str, float]:
    """One conversation's window of so many rows."""
    launch, random = dependent.launch(DEVICE), torch.Generator(DEVICE).manual_seed(1)
    logits = torch.randn((rows, V), generator=random, device=DEVICE) * 3
    banned = torch.zeros(V, dtype=torch.int8, device=DEVICE)
    ids = torch.zeros(rows, dtype=torch.int32, device=DEVICE)
    first = torch.tensor([0, rows], dtype=torch.int32, device=DEVICE)
    nothing, dice = np.empty(0, np.int64), np.random.default_rng(1)
    seen = dice.choice(V, 2000, replace=False).astype(np.int32)
    touched = Touched(seen, np.ones(2000, np.bool_), np.zeros(2000, np.float32), 1.1)
    plain, greedy = Look(V, DEVICE), Choice(rows, 1, V, DEVICE)
    rule = Drawn(Wish(nothing, 0, 0.7, (RowWish(0.4),) * rows), (1,), 20, 0.8, 0.0)
    kind = plain.prepare_draw([rule])
    adjusted = Look(V, DEVICE)
    every = Wish(nothing, 5, 0.7, (RowWish(0.4, touched, np.ones(V, np.bool_)),) * rows)
    how, room = adjusted.prepare([every])
    greedy.prepare([Greedy(nothing, (1,), 1)])

    def drawn() -> None:
        plain.launch(logits, banned, kind, 0, launch)
        plain.launch_draw(ids, first, launch)

    return compared(
        {
            "greedy": lambda: greedy.launch(logits, banned, ids, first, 1, launch),
            "looked at": lambda: plain.launch(logits, banned, kind, 0, launch),
            "drawn": drawn,
            "penalties, mask and 5 alternatives": lambda: adjusted.launch(logits, banned, how, room, launch),
        }
    )


def attention(rows: int, length: int) -> dict[str, float]:
    """A window's attention, without merging, behind so many tokens."""
    launch, random = dependent.launch(DEVICE), torch.Generator(DEVICE).manual_seed(length)
    pages = -(-(length + rows) // PAGE)
    table = torch.randperm(pages, generator=random, device=DEVICE).to(torch.int32)[None]
    seen = torch.arange(length + 1, length + rows + 1, dtype=torch.int32, device=DEVICE)
    slots, parts = torch.zeros_like(seen), 33
    query = torch.randn((rows, NH, HD), generator=random, device=DEVICE)
    part = torch.empty((rows, NH, parts, HD), device=DEVICE)
    peak, weight = torch.empty((2, rows, NH, parts), device=DEVICE)
    most = max(BUDGET, length // RATIO)
    chosen = torch.stack(
        [torch.randperm(most, generator=random, device=DEVICE)[:BUDGET].sort()[0] for _ in range(rows)]
    ).to(torch.int32)
    numbers = torch.randn((2, pages, PAGE, NKV, HD), generator=random, device=DEVICE).to(torch.bfloat16)
    eight = torch.randint(0, 127, (2, pages, PAGE, NKV, HD // 32, 36), device=DEVICE).to(torch.uint8)
    eight[..., :4] = torch.tensor(list(np.float32(0.01).tobytes()), dtype=torch.uint8, device=DEVICE)

    def attend(cells: torch.Tensor) -> None:
        qsa.attend[(rows, NKV, parts)](
            query, cells[0], cells[1], chosen, slots, seen, table, pages, part, peak, weight,
            0 if launch["PDL"] else 1, NH=NH, NKV=NKV, HD=HD, RATIO=RATIO, BUDGET=BUDGET, HEADS=16, CELLS=64,
            PARTS=parts, LANES=64, SPLIT=torch.cuda.get_device_capability()[0] >= 8, **launch, num_warps=8,
            num_stages=3,
        )  # fmt: skip

    return compared({"bf16": lambda: attend(numbers), "q8": lambda: attend(eight)})


def guessing() -> dict[str, Any]:
    """Wall microseconds of chains of Pebble, by depth."""
    from strata import pebble
    from strata.gguf import open_model
    from strata.loading import gpu
    from strata.loading.cache import cached_as
    from strata.model import load_config, load_weights

    directory = open_model(pebble.path("iq3"))
    config = cached_as(load_config(directory.metadata), None)
    card = gpu.find("cuda")
    assert card is not None
    made = gpu.plan_for(card, directory, config, 1)
    network = replace(gpu.network(card, load_weights(directory, config), config, made, None)[0], drafts=True)
    state = network.new_state()
    network.read(state, list(range(5, 105)))
    network.settle(state)
    found: dict[str, Any] = {}
    for depth in (1, 3, 7):
        times: dict[str, list[float]] = {"chained": [], "step by step": []}
        for _ in range(30):
            for name, run in (("chained", network.guess), ("step by step", network.draft)):
                began = time.perf_counter()
                run(state, 7, depth, 0.0)
                torch.cuda.synchronize()
                times[name].append((time.perf_counter() - began) * 1e6)
        found[str(depth)] = {name: round(statistics.median(taken[3:]), 1) for name, taken in times.items()}
    return found


def main() -> None:
    """Measure all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with torch.inference_mode():
        result = {
            "device": torch.cuda.get_device_name(),
            "choosing_us": {rows: choosing(rows) for rows in (1, 4, 8)},
            "attend_us": {
                f"{length}, {rows} rows": attention(rows, length) for length in (256, 2048, 32768) for rows in (1, 4, 8)
            },
            "guesses_us": guessing(),
        }
    print(json.dumps(result, indent=1))
    if chosen.json:
        chosen.json.write_text(json.dumps(result, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
