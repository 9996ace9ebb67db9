"""Many slow, rude and broken clients at once, for a long time: does the server keep its promises?

    python tools/soak.py --minutes 10 --clients 200 --json bench/results/server-soak.json
    python tools/soak.py --minutes 1 --clients 50 --engine scripted
    python tools/soak.py --minutes 9 --resize 1GB 3GB --serve --vram 3GB     # on a GPU, with experts in tiers
    python tools/soak.py --minutes 4 --clients 100 --engine scripted --models 3 --serve --loaded-models 2 --model-turn 2

It starts `strata serve` with eight conversations. Every right answer is known before: with Pebble it is what the server
says while it is alone, at temperature 0; a script's answers name themselves in every word. Of several models, which
are scripts, each word names its model, too, and clients also load and unload them by hand. Exit code 1 if a promise is
broken.
"""

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools"))

from soaking import dialects
from soaking.crowd import Crowd, alone
from soaking.promises import Promise, measured, promises, together
from soaking.served import DELAY, TURNS, Server, words
from soaking.sizes import Sizes
from soaking.watch import Ends, Health, Process, get, look, status

CACHE_GB = 0.03
"""Memory for conversations that are kept: little, so that it is full before memory is watched."""

SHOWN = 20
"""Faults that are printed in words."""


def prompts(count: int) -> dict[str, list[str]]:
    """By dialect. Raw continuations say what they say; the others count."""
    dice = random.Random(5)
    counts = [f"Count from {a} to {a + dice.randrange(8, 31)}." for a in dice.sample(range(2, 60), count)]
    return {dialect: counts[: count // 3] if dialect == "completions" else counts for dialect in dialects.PATHS}


async def answers(port: int, asked: dict[str, list[str]]) -> dict[tuple[str, str], str]:
    """What is said to each while there is nobody else; the chat dialects all say the same."""
    known = {("completions", prompt): await alone(port, "completions", prompt) for prompt in asked["completions"]}
    for prompt in asked["chat"]:
        said = await alone(port, "chat", prompt)
        known |= {(dialect, prompt): said for dialect in ("chat", "responses", "messages")}
    return known


def idle(port: int, seconds: float = 60.0) -> Any:
    """The status once nothing is under way, or after so long."""
    end = time.monotonic() + seconds
    while True:
        now = status(port)
        engine = together(now["engines"])
        busy = now["requests"] or engine["waiting"] or engine["running"] or engine["cancels"]["open"]
        if not busy or time.monotonic() > end:
            return now
        time.sleep(0.1)


def let_go(port: int, models: tuple[str, ...]) -> None:
    """Unload all models, as all were before."""
    for name in models:
        told = post(port, "/v1/models/unload", {"model": name, "wait": True})
        if told.get("status", {}).get("value") != "unloaded":
            raise RuntimeError(f"{name} is not unloaded: {told}")


def post(port: int, path: str, body: dict[str, Any]) -> Any:
    """Ask once, whatever comes back."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        link.request("POST", path, json.dumps(body))
        return json.loads(link.getresponse().read())
    finally:
        link.close()


def counted(port: int, name: str) -> int:
    """A counter of the server's, of all models together."""
    lines = get(port, "/metrics")[1].decode().splitlines()
    return round(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith((f"{name}{{", f"{name} "))))


def counters(port: int) -> tuple[float, float]:
    """Windows and passes so far, and the seconds of them."""
    time.sleep(0.5)  # counters come with the engine's signs of life
    lines = [line.rsplit(" ", 1) for line in get(port, "/metrics")[1].decode().splitlines() if line[:1] != "#"]
    units = sum(
        float(v) for name, v in lines if name.startswith(("strata:scheduler_windows", "strata:scheduler_passes"))
    )
    seconds = sum(float(v) for name, v in lines if name.startswith("strata:engine_seconds_total"))
    return units, seconds


@contextlib.contextmanager
def watched(server: Server, sizes: Sizes) -> Iterator[tuple[Health, Ends, dict[str, Process]]]:
    """All that is looked at meanwhile."""
    health, ends = Health(server.port), Ends(server.port)
    processes = {"server": Process(server.pid)}
    if server.engine:  # those of several models come and go
        processes["engine"] = Process(server.engine)
    threads = [health, ends, sizes, *processes.values()]
    for thread in threads:
        thread.start()
    try:
        yield health, ends, processes
    finally:
        for thread in threads:
            thread.stop()


def soak(arguments: argparse.Namespace, folder: Path) -> tuple[dict[str, Any], list[Promise], list[str]]:
    """Do it; returns the numbers, what came of the promises, and what was wrong in words."""
    scripted = arguments.engine == "scripted"
    models = tuple("abcdefghijklmnopqrstuvwxyz"[: arguments.models]) if arguments.models > 1 else ()
    server = Server(folder, scripted=scripted, models=models, more=["--cache-ram", str(CACHE_GB), *arguments.serve])
    try:
        server.wait()
        asked = prompts(6 if scripted else arguments.prompts)
        known = {} if scripted else asyncio.run(answers(server.port, asked))
        texts = frozenset("".join(words(i, name)) for i in range(TURNS) for name in models or ("",) if scripted)
        for name in models:  # its words are read once, and stay
            post(server.port, "/tokenize", {"model": name, "content": "x"})
        pids = {"server": server.pid} | ({"engine": server.engine} if server.engine else {})
        before = {name: look(pid) for name, pid in pids.items()}
        first, before_count = idle(server.port), counters(server.port)
        began = time.monotonic()
        until = began + arguments.minutes * 60
        sizes = Sizes(server.port, arguments.resize)
        crowd = Crowd(server.port, asked, known, texts, arguments.think, until, arguments.seed, models)
        with watched(server, sizes) as (health, ends, processes):
            asyncio.run(crowd.run(arguments.clients))
        loaded = time.monotonic() - began
        last, after_count = idle(server.port), counters(server.port)
        time.sleep(min(5.0, arguments.minutes * 6))  # what is freed later, and connections that close
        again = {} if scripted else asyncio.run(answers(server.port, asked))
        ends.once()
        let_go(server.port, models)
        after = {name: look(pid) for name, pid in pids.items()}
        loads = counted(server.port, "strata:model_loads_total"), counted(server.port, "strata:model_unloads_total")
    finally:
        code, took = server.end()
    worked = after_count[1] - before_count[1]
    seen = {
        "first": first, "last": last, "before": before, "after": after, "began": began, "until": until,
        "again": again == known, "exit code": code, "seconds to end": took, "log": server.log.read_text("utf-8"),
        "sizes": sizes, "models": models, "loads": loads, "warm": arguments.warm, "loaded": loaded,
        "window": DELAY if models else 1000 * worked / max(1, after_count[0] - before_count[0]),
    }  # fmt: skip
    numbers = measured(crowd.tally, health, ends, processes, seen)
    return numbers, promises(numbers, crowd.tally, short=arguments.minutes < 4), crowd.tally.wrong


def conditions(arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked of which machine."""
    model = "".join(
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if line.startswith("model name")
    )[:60]
    return {
        "engine": "Pebble" if arguments.engine == "model" else "scripted",
        "models": arguments.models,
        "clients": arguments.clients,
        "minutes": arguments.minutes,
        "conversations": 8,
        "think (s, at most)": arguments.think,
        "seed": arguments.seed,
        "cache-ram (GB)": CACHE_GB,
        "processor": model,
        "cores": os.cpu_count(),
        "load average at the start": [round(x, 1) for x in os.getloadavg()],
        "python": platform.python_version(),
    }


def main() -> int:
    """Soak, print, keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--engine", choices=["model", "scripted"], default="model")
    parser.add_argument("--models", type=int, default=1, help="several scripts behind one port")
    parser.add_argument("--think", type=float, default=3.0, help="most seconds between two requests of a client")
    parser.add_argument("--prompts", type=int, default=24, help="different questions")
    parser.add_argument("--warm", type=float, default=0.3, help="share of the time after which memory is watched")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resize", nargs="+", default=(), help="shares of a GPU's memory, one after the other")
    parser.add_argument("--serve", nargs=argparse.REMAINDER, default=[], help="more arguments of strata serve, last")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if not 1 <= arguments.models <= 26 or (arguments.models > 1 and arguments.engine != "scripted"):
        parser.error("--models is a number from 1 to 26, and more than one are scripts (--engine scripted)")
    about = conditions(arguments)
    with tempfile.TemporaryDirectory() as folder:
        numbers, kept, wrong = soak(arguments, Path(folder))
    width = max(map(len, numbers))
    for name, value in numbers.items():
        print(f"{name:<{width}}  {value}")
    for text in wrong[:SHOWN]:
        print(text)
    print()
    for promise in kept:
        print(promise)
    broken = sum(promise.kept is False for promise in kept)
    print(f"\n{broken} of {len(kept)} promises are broken" if broken else f"\nall {len(kept)} promises are kept")
    if arguments.json:
        command = "python tools/soak.py " + " ".join(sys.argv[1:])
        told = [{"promise": p.name, "number": p.number, "kept": p.kept, "timing": p.timing} for p in kept]
        record = {
            "command": command,
            "conditions": about,
            "numbers": numbers,
            "promises": told,
            "faults": wrong[:SHOWN],
        }
        arguments.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
