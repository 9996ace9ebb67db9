"""Speed of Pebble with and without drafts, and whether it is what acceptance and the cost of windows predict.

    python bench/drafts.py [--rounds 5] [--json bench/results/drafts.json]

Paired: arms alternate within each round. Times are CPU time of the one thread that computes, without the reading of the
prompt, so that other work on the machine disturbs little. The text is compared as well; it must not change.

Arms: `plain`, a network without the draft head; `fed`, one that keeps the head up to date but guesses nothing; `drafts
N`, N tokens of the head for every window; `up to 7`, as many as measured time and acceptance say; `lookup`, the same
with prompt lookup instead of the head; `default`, with both. The prediction for an arm is made of its counts (windows
by rows, draft steps) and of costs measured apart from it in the same round: windows with choice and commit, and draft
chains, along the text as it is known.

Holds when: on counting text every `drafts N` is faster than `plain` by what is predicted, within 15%.
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
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

COPY = "Repeat: " + " ".join(str(n * n * 7919 % 997) for n in range(3, 27))


class Text(NamedTuple):
    """What is answered: a message or, where `chat` is false, a beginning; and how long and freely."""

    prompt: str
    tokens: int
    chat: bool = True
    temperature: float = 0.0


TEXTS = {
    "counting": Text("Count from 1 to 60.", 260),
    "chat": Text("What can you do?", 60),
    "copy": Text(COPY, 120),
    "prose": Text("The standard library of Python offers", 160, chat=False),
    "sampled prose": Text("The standard library of Python offers", 160, chat=False, temperature=1.5),
}
FIXED = (1, 2, 3, 5, 7)
CLOSE = 0.15
"""How far a speed may be from its prediction."""

clock = time.thread_time


class Arm(NamedTuple):
    """What may be guessed, and what measures time for it; without `head` the network has none."""

    drafting: Any
    head: bool = True
    timings: Any = None


def arms() -> dict[str, Arm]:
    """All of them; those that choose a depth share their times between texts, as an engine does between requests."""
    from strata.engine import Drafting, Timings

    none = Drafting()
    fixed = {f"drafts {n}": Arm(Drafting(n, lookup=False, head=True)) for n in FIXED}
    return {
        "plain": Arm(none, head=False),
        "fed": Arm(none),
        **fixed,
        "up to 7": Arm(Drafting(7, measured=True, lookup=False, head=True), timings=Timings()),
        "lookup": Arm(Drafting(7, measured=True), head=False, timings=Timings()),
        "default": Arm(Drafting(7, measured=True, head=True), timings=Timings()),
    }


def prompt_ids(model: Any, text: Text) -> list[int]:
    """The tokens of a prompt."""
    if not text.chat:
        return model.tokenize(text.prompt)
    messages = [{"role": "user", "content": text.prompt}]
    return model.tokenizer.encode_prompt(model.template.render(messages, tools=None, thinking=False, effort=None))


def answer(model: Any, ids: list[int], text: Text, arm: Arm) -> tuple[list[int], float, Any]:
    """Tokens, seconds a token after the first, and the trace of one answer."""
    from strata.engine import Generation, Request, Token, Trace, step

    net = replace(model.network, drafts=arm.head)
    sampling = replace(model.sampling, temperature=text.temperature, seed=1)
    request = Request("", tuple(ids), sampling, frozenset(model.tokenizer.eos_ids), text.tokens, arm.drafting)
    generation, trace = Generation(net, net.new_state(), request, timings=arm.timings), Trace()
    events = []
    while generation.reading:
        events += generation.read()
    began = clock()
    while not generation.finished:
        events += step(net, [generation], trace=trace)[0]
    took = clock() - began
    return [e.id for e in events if isinstance(e, Token)], took / max(1, generation.tokens - 1), trace


class Price(NamedTuple):
    """Seconds of windows by rows (0: one row without the head), and of draft chains by steps."""

    windows: dict[int, float]
    chains: dict[int, float]


def costs(model: Any, ids: list[int], text: list[int]) -> Price:
    """Go along a text that is known, so many rows at a time, each window behind a chain that guesses as many."""
    from strata.engine import Chooser

    chooser = Chooser(model.sampling, vocabulary=model.network.config.V)
    price = Price({}, {})
    for rows in range(9):
        net, count = replace(model.network, drafts=rows > 0), max(1, rows)
        state = net.new_state()
        net.read(state, ids)
        windows, chains = [], []
        for place in range(0, len(text) - count + 1, count):
            piece = text[place : place + count]
            began = clock()
            if count > 1:
                net.draft(state, piece[0], count - 1, 1e-9)  # sure enough always, and asked whether it is
            drafted = clock()
            done = net.window([(state, piece)])[0]
            chooser.verify(net.logits(done.residual).numpy(), piece[1:], state.length + 1)
            net.commit(state, done, count)
            chains.append(drafted - began)
            windows.append(clock() - drafted)
        if windows:
            price.windows[rows] = statistics.mean(windows)
            price.chains[count - 1] = statistics.mean(chains)
    return price


def predicted(trace: Any, depth: int, price: Price, tokens: int) -> float:
    """How many times faster than plain an answer should have been."""
    steps: Counter[int] = Counter()
    rows: Counter[int] = Counter()
    for record in trace.records:
        rows[record.rows] += 1
        guessed = sum(record.drafted.values())
        steps[min(depth, guessed + 1)] += 1  # a chain that ended early took one step more than it guessed
    windows = sum(price.windows[n] * count for n, count in rows.items())
    return (tokens - 1) * price.windows[0] / (windows + sum(price.chains[n] * count for n, count in steps.items()))


def measure(model: Any, name: str, text: Text, all_arms: dict[str, Arm], rounds: int) -> list[dict[str, Any]]:
    """Rows of the table for one text."""
    ids = prompt_ids(model, text)
    times: dict[str, list[float]] = {arm: [] for arm in all_arms}
    traces, texts, prices = {}, set(), []
    for turn in range(rounds):
        order = list(all_arms.items())
        for arm, what in order if turn % 2 else reversed(order):
            said, took, traces[arm] = answer(model, ids, text, what)
            texts.add(tuple(said))
            times[arm].append(took)
        prices.append(costs(model, ids, said))
    assert len(texts) == 1, "drafts must not change the text"
    rows = []
    for arm, values in times.items():
        ratios = [plain / value for plain, value in zip(times["plain"], values, strict=True)]
        trace = traces[arm].records
        drafted = sum((Counter(record.drafted) for record in trace), Counter())
        row = {
            "text": name,
            "arm": arm,
            "tokens": len(said),
            "tokens_per_s": round(1 / statistics.median(values), 1),
            "speedup": round(statistics.median(ratios), 3),
            "speedup_least": round(min(ratios), 3),
            "speedup_most": round(max(ratios), 3),
            "tokens_per_window": round(sum(1 + r.accepted for r in trace) / max(1, len(trace)), 2),
            "guessed": dict(drafted),
            "accepted": sum(r.accepted for r in trace),
        }
        if arm.startswith("drafts") and len(said) > 8:
            expected = [predicted(traces[arm], int(arm.split()[1]), price, len(said)) for price in prices]
            off = [ratio / each for ratio, each in zip(ratios, expected, strict=True)]
            row |= {
                "predicted": round(statistics.median(expected), 3),
                "measured_over_predicted": round(statistics.median(off), 3),
            }
        rows.append(row)
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    windows, chains = (
        {n: round(statistics.median(p[kind][n] / p.windows[0] for p in prices), 2) for n in prices[0][kind]}
        for kind in (0, 1)
    )
    print(f"{name}: windows by rows {windows}, draft chains by steps {chains}")
    return [*rows, {"text": name, "windows_in_one_row": windows, "draft_chains_in_one_row": chains}]


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
    rows, all_arms = [], arms()
    with torch.inference_mode():
        for name, text in TEXTS.items():
            short = text._replace(tokens=min(text.tokens, arguments.tokens))
            rows += measure(model, name, short, all_arms, arguments.rounds)
    found = [r["measured_over_predicted"] for r in rows if r["text"] == "counting" and "predicted" in r]
    holds = bool(found) and all(abs(ratio - 1) <= CLOSE for ratio in found)
    print(f"counting is faster as acceptance predicts, within {CLOSE:.0%}: {'yes' if holds else 'NO'}, {found}")
    if arguments.json:
        conditions = {
            "command": f"python bench/drafts.py --rounds {arguments.rounds} --json {arguments.json}",
            "model": "pebble-q8_0.gguf, weights as stored, one thread, prompt reading not counted",
            "time": "CPU time of the computing thread; the machine did other work",
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__},
            "rounds": arguments.rounds,
        }
        arguments.json.write_text(
            json.dumps(
                {"conditions": conditions, "holds": holds, "measured_over_predicted": found, "rows": rows}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
