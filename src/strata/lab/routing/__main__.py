"""``python -m strata.lab.routing``: made-up routing, and what rules for a cache of experts make of it."""

import argparse
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from strata.errors import StrataError
from strata.lab.routing.compare import ONLINE, Case, case, policies, score
from strata.lab.routing.drafts import drafted
from strata.lab.routing.generator import Character, Routing, Rows
from strata.lab.routing.heat import turns
from strata.lab.routing.plot import Axis, chart
from strata.lab.routing.published import HITS, UNION, Published
from strata.lab.routing.reading import read
from strata.lab.routing.results import table, write, write_json
from strata.lab.routing.trace import Trace, TraceWriter
from strata.lab.routing.tuning import tuned
from strata.lab.routing.windows import visits
from strata.model.ops import WINDOW_ROWS

OTHERS = 1_000_000
"""Number of the first conversation that a profile is learned from; no conversation that is played has it."""

SIZES = (5, 8, 12, 17, 24, 32, 40, 50, 60)
"""Percent of all experts that fit."""


def main(arguments: list[str] | None = None) -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(prog="python -m strata.lab.routing", description=__doc__)
    kinds = ["check", "compare", "tune", "heat", "drafts", "reading", "make", "record"]
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=12_000, help="rows that are played")
    parser.add_argument("--learned", type=int, default=8_000, help="rows of other conversations that make the profile")
    parser.add_argument("--moves", type=int, default=16, help="copies that may begin after a window")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="percent of the experts that fit")
    parser.add_argument("--trace", type=Path, help="play a recording; its second half, for the first makes the profile")
    parser.add_argument("--link", type=float, default=51.0, help="GB/s of the link that experts cross for `reading`")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--svg", type=Path)
    parser.add_argument("--out", type=Path, help="where `make` and `record` write a recording")
    real = parser.add_argument_group("record", "what a real model visits in texts of your own")
    real.add_argument("--model", help="a GGUF file; without, the model in the box")
    real.add_argument("--text", type=Path, nargs="+", default=(), help="texts, each a conversation")
    real.add_argument("--window", type=int, default=4, help="tokens of the text that a window takes, 1 to 8")
    real.add_argument("--answer", type=int, default=0, help="let the model go on behind each text, by so many tokens")
    real.add_argument("--most", type=int, help="tokens of each text that are looked at")
    real.add_argument("--device", default="auto", help="as everywhere")
    real.add_argument("--vram", help="as everywhere, such as 12GB")
    real.add_argument("--threads", type=int, help="as everywhere")
    given = parser.parse_args(arguments)
    try:
        {
            "check": check, "compare": compare, "tune": tune, "heat": heat, "drafts": drafts, "reading": reading,
            "make": make, "record": recorded,
        }[given.what](given)  # fmt: skip
    except StrataError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def read_case(given: argparse.Namespace) -> tuple[Case, str]:
    """What is played, and what it is in words."""
    if given.trace:
        trace = Trace(given.trace)
        pieces = list(trace.pieces())
        half = sum(len(rows) for _, rows in pieces) // 2
        learned: list[tuple[int, Rows]] = []
        while pieces and half > 0:
            half -= len(pieces[0][1])
            learned.append(pieces.pop(0))
        return case(learned, pieces, trace.layers, trace.experts), f"recording {given.trace.name}"
    routing = Routing(seed=given.seed)
    c = routing.character
    played = case(routing.rows(given.learned, OTHERS), routing.rows(given.rows), c.layers, c.experts)
    return played, f"made-up routing, seed {given.seed}, {given.rows} rows in windows of 4"


def check(given: argparse.Namespace) -> None:
    """Hold made-up routing against what was published."""
    played, words = read_case(given)
    print(words)
    print(table(("hits", "published", "here"), [_held(each, played, given.moves) for each in HITS]))
    rows = list(Routing(seed=given.seed).rows(2000))
    lines = [(str(count), f"{times:.2f}", f"{union(rows, count):.2f}") for count, times in UNION.items()]
    print(table(("rows of a window", "experts, published", "here"), lines))


def _held(each: Published, played: Case, moves: int) -> tuple[str, str, str]:
    found = score(each.policy, each.share, moves, played)
    return f"{each.share:.1%}, {each.policy}", f"{each.low:.1%}-{each.high:.1%}", f"{found.hits:.1%}"


def union(pieces: Iterable[tuple[int, Rows]], count: int, experts: int = 512) -> float:
    """Experts that a window of `count` rows visits, times those of one row."""
    sizes = [
        len(visits(rows[i : i + count], experts)) / rows[0].size
        for _, rows in pieces
        for i in range(0, len(rows) - count + 1, count)
    ]
    return float(np.mean(sizes))


def compare(given: argparse.Namespace) -> None:
    """Play every policy over every size."""
    played, words = read_case(given)
    scores = []
    for size in given.sizes:
        for name in policies():
            scores.append(score(name, size / 100, given.moves, played))
            print(f"{size:3d}% {name:26s} hits {scores[-1].hits:6.1%}  moves {scores[-1].moves:6.1f}", flush=True)
    by = {(each.policy, round(100 * each.share)): each for each in scores}
    rows = [
        (name, *(f"{by[name, size].hits * 100:.1f} ({by[name, size].moves:.0f})" for size in given.sizes))
        for name in policies()
    ]
    behind = [max(by[name, size].hits for name in ONLINE) - by["counted", size].hits for size in given.sizes]
    rows.append(("counted, points behind the best", *(f"{100 * each:.1f}" for each in behind)))
    print(table(("hits in % (moves a window)", *(f"{size}%" for size in given.sizes)), rows))
    if given.json:
        about = {"what": words, "moves": given.moves, "visits_per_window": float(np.mean([*map(len, played.windows)]))}
        published = [each._asdict() for each in HITS]
        write_json(given.json, {**about, "published": published, "scores": [asdict(each) for each in scores]})
    if given.svg:
        curves = {name: [(size, 100 * by[name, size].hits) for size in given.sizes] for name in policies()}
        ranges = {each.source: (100 * each.share, 100 * each.low, 100 * each.high) for each in HITS}
        across, up = Axis("experts in VRAM, %", 0, 60, 10), Axis("visits that are hits, %", 0, 100, 10)
        title = f"Hits by policy and size, at most {given.moves} moves a window"
        write(given.svg, chart(title, across, up, curves, {} if given.trace else ranges))


def tune(given: argparse.Namespace) -> None:
    """Play our rule with other parameters."""
    played, words = read_case(given)
    found = []
    for each in tuned(played, given.moves):
        found.append(each)
        print(each.text, flush=True)
    if given.json:
        write_json(given.json, {"what": words, "rules": [each.record for each in found]})


def heat(given: argparse.Namespace) -> None:
    """Conversations that take turns, with counts of their own and without."""
    found = []
    for each in turns(given.seed, given.moves, given.rows):
        found.append(each)
        print(each, flush=True)
    if given.json:
        write_json(
            given.json, {"what": f"made-up routing, seed {given.seed}", "turns": [asdict(each) for each in found]}
        )


def drafts(given: argparse.Namespace) -> None:
    """Generate texts with and without drafts on several machines."""
    found = []
    for each in drafted(given.rows, given.seed):
        found.append(each)
        print(each.text, flush=True)
    worst = min(each.against_none for each in found if each.rule == "priced")
    print(f"priced, at worst {worst:.3f} times the speed without drafts")
    if given.json:
        what = f"made-up routing, seed {given.seed}, {given.rows} tokens"
        write_json(given.json, {"what": what, "outcomes": [each.record for each in found]})


def reading(given: argparse.Namespace) -> None:
    """Read short prompts with a part of the experts in VRAM."""
    found = list(read(Routing(seed=given.seed), given.sizes, given.learned, given.link, others=OTHERS))
    lines = [
        (
            f"{each.size:g}%, {each.tokens} tokens",
            f"{each.visited:.0f}",
            f"{each.missed:.0f} of {each.missing:.0f} ({each.share:.0%})",
            f"{each.link_ms:.0f}",
            f"{1000 * each.tokens / each.link_ms:.0f}" if each.link_ms else "",
            f"{each.all_ms:.0f}",
        )
        for each in found
    ]
    head = ("in VRAM, prompt", "experts of a layer", "missed", "link, ms", "tokens/s at most", "all missing, ms")
    print(table(head, lines))
    if given.json:
        what = f"made-up routing, seed {given.seed}, a link of {given.link:g} GB/s"
        write_json(given.json, {"what": what, "prompts": [asdict(each) for each in found]})


def make(given: argparse.Namespace) -> None:
    """Write made-up routing as a recording."""
    if given.out is None:
        raise StrataError("say where to: --out FILE")
    c = Character()
    with TraceWriter(given.out, c.layers, c.experts, c.topk, made_up=True, seed=given.seed) as writer:
        number = 0
        for conversation, rows in Routing(c, given.seed).rows(given.rows):
            for i in range(0, len(rows), 4):
                writer.window(number, rows[i : i + 4], conversation)
                number += 1


def recorded(given: argparse.Namespace) -> None:
    """Write what a model visits in some texts."""
    from strata.api import load
    from strata.config.kinds import Bytes, UnfitError
    from strata.lab.routing.record import record

    if given.out is None or not given.text:
        raise StrataError("say which texts, and where to: --text FILE... --out FILE")
    if not 1 <= given.window <= WINDOW_ROWS or given.answer < 0:
        raise StrataError(f"a window takes 1 to {WINDOW_ROWS} tokens, and an answer has 0 or more")
    try:
        vram = None if given.vram is None else Bytes().check(given.vram)
    except UnfitError as error:
        raise StrataError(f"--vram must be {error}, not {given.vram!r}") from None
    with load(given.model, device=given.device, vram=vram, threads=given.threads) as model:
        windows = record(model, given.text, given.out, rows=given.window, answer=given.answer, most=given.most)
        print(f"{windows} windows on {model.ready.placed}; `compare --trace {given.out}` plays them")


if __name__ == "__main__":
    sys.exit(main())
