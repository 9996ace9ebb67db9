"""Speed of Pebble with and without drafts, and whether it is what acceptance and the cost of windows predict.

    python bench/drafts.py [--rounds 5] [--json bench/results/drafts.json]

Paired: arms alternate within each round. Times are CPU time of the one thread that computes, without the reading of the
prompt, so that other work on the machine disturbs little. The text is compared as well; it must not change.

Arms: `plain`, a network without the draft head; `fed`, one that keeps the head up to date but guesses nothing; `drafts
N`, N tokens guessed for every window; `up to 7`, as many as measured time and acceptance say. The prediction for an arm
is made of its counts (windows by rows, draft steps) and of costs measured apart from it: windows with choice and
commit, and draft chains, on the same text.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

PROMPTS = {
    "counting": ("Count from 1 to 60.", 260),
    "tool-free chat": ("What can you do?", 60),
    "prose": ("The standard library of Python offers", 80),
}
FIXED = (1, 2, 3, 5, 7)
clock = time.thread_time


def arms() -> dict[str, Any]:
    """What each arm may guess; None is the plain network."""
    from strata.engine import Drafting

    fixed = {f"drafts {n}": Drafting(n, lookup=False, head=True) for n in FIXED}
    measured = Drafting(7, measured=True, lookup=False, head=True)
    return {"plain": None, "fed": Drafting(), **fixed, "up to 7": measured}


def prompt_ids(model: Any, name: str) -> list[int]:
    """The tokens of one of the prompts."""
    text = PROMPTS[name][0]
    if name == "prose":
        return model.tokenize(text)
    rendered = model.template.render([{"role": "user", "content": text}], tools=None, thinking=False, effort=None)
    return model.tokenizer.encode_prompt(rendered)


def answer(model: Any, ids: list[int], limit: int, drafting: Any, timings: Any) -> tuple[list[int], float, Any]:
    """Tokens, seconds a token after the first, and the trace of one answer."""
    from strata.engine import Drafting, Generation, Request, Token, Trace, step

    net = replace(model.network, drafts=drafting is not None)
    request = Request("", tuple(ids), model.sampling, frozenset(model.tokenizer.eos_ids), limit, drafting or Drafting())
    generation, trace = Generation(net, net.new_state(), request, timings=timings), Trace()
    events = []
    while generation.reading:
        events += generation.read()
    began = clock()
    while not generation.finished:
        events += step(net, [generation], trace=trace)[0]
    took = clock() - began
    return [e.id for e in events if isinstance(e, Token)], took / max(1, generation.tokens - 1), trace


def costs(model: Any, ids: list[int], text: list[int], rounds: int) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds of windows by rows and of draft chains by steps, along a text that is known."""
    from strata.engine import Chooser

    net = replace(model.network, drafts=True)
    chooser = Chooser(model.sampling, vocabulary=net.config.V)
    windows: dict[int, list[float]] = {rows: [] for rows in range(1, 9)}
    chains: dict[int, list[float]] = {steps: [] for steps in range(1, 8)}
    start = net.new_state()
    net.read(start, ids)
    for _ in range(rounds):
        for place in range(0, max(1, len(text) - 9), 16):
            state = start.clone()
            net.read(state, text[: place + 1])
            for rows, times in windows.items():
                here, piece = state.clone(), text[place + 1 : place + 1 + rows]
                began = clock()
                done = net.window([(here, piece)])[0]
                chooser.verify(net.logits(done.residual).numpy(), piece[1:], here.length + 1)
                net.commit(here, done, len(piece))
                if len(piece) == rows:
                    times.append(clock() - began)
                if len(piece) == rows and rows in chains:  # as many cells wait as the window before accepted
                    began = clock()
                    net.draft(here, text[place], rows, 1e-9)  # sure enough always, and asked whether it is
                    chains[rows].append(clock() - began)
    return (
        {rows: statistics.median(times) for rows, times in windows.items() if times},
        {steps: statistics.median(times) for steps, times in chains.items() if times},
    )


def predicted(trace: Any, depth: int, windows: dict[int, float], chains: dict[int, float], tokens: int) -> float:
    """How many times faster than plain an answer should have been."""
    steps: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for record in trace.records:
        rows[record.rows] += 1
        guessed = sum(record.drafted.values())
        steps[min(depth, guessed + 1)] += 1  # a chain that ended early took one step more than it guessed
    time_ = sum(windows[n] * count for n, count in rows.items()) + sum(chains[n] * count for n, count in steps.items())
    return (tokens - 1) * windows[1] / time_


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
    from strata.engine import Timings

    model = strata.load(threads=1)
    rows = []
    timings = Timings()  # as an engine shares it between its requests
    with torch.inference_mode():
        for name, (_, limit) in PROMPTS.items():
            ids, most = prompt_ids(model, name), min(limit, arguments.tokens)
            times: dict[str, list[float]] = {arm: [] for arm in arms()}
            traces, texts = {}, set()
            for turn in range(arguments.rounds):
                order = list(arms().items())
                for arm, drafting in order if turn % 2 else reversed(order):
                    text, took, traces[arm] = answer(model, ids, most, drafting, timings)
                    texts.add(tuple(text))
                    times[arm].append(took)
            assert len(texts) == 1, "drafts must not change the text"
            windows, chains = costs(model, ids, text, max(1, arguments.rounds // 2))
            for arm, values in times.items():
                ratios = [plain / value for plain, value in zip(times["plain"], values, strict=True)]
                trace = traces[arm].records
                row = {
                    "text": name,
                    "arm": arm,
                    "tokens": len(text),
                    "tokens_per_s": round(1 / statistics.median(values), 1),
                    "speedup": round(statistics.median(ratios), 3),
                    "speedup_least": round(min(ratios), 3),
                    "speedup_most": round(max(ratios), 3),
                    "tokens_per_window": round(sum(1 + r.accepted for r in trace) / max(1, len(trace)), 2),
                }
                if arm.startswith("drafts") and len(text) > 8:
                    expected = predicted(traces[arm], int(arm.split()[1]), windows, chains, len(text))
                    row |= {"predicted": round(expected, 3), "measured_over_predicted": 0.0}
                    row["measured_over_predicted"] = round(row["speedup"] / expected, 3)
                rows.append(row)
                print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            relative = {n: round(t / windows[1], 2) for n, t in windows.items()}
            drafts = {n: round(t / windows[1], 2) for n, t in chains.items()}
            rows.append({"text": name, "windows_in_one_row": relative, "draft_chains_in_one_row": drafts})
            print(f"{name}: windows by rows {relative}, draft chains by steps {drafts}")
    if arguments.json:
        conditions = {
            "command": f"python bench/drafts.py --rounds {arguments.rounds} --json {arguments.json}",
            "model": "pebble-q8_0.gguf, weights as stored, one thread, prompt reading not counted",
            "time": "CPU time of the computing thread; the machine did other work",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "rounds": arguments.rounds,
        }
        arguments.json.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
