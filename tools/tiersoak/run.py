"""One soak from beginning to end."""

import argparse
import gc
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch

from figures.conditions import conditions
from strata import pebble
from strata.model import Network
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from tiersoak.asked import BRIEF, BROAD, NARROW, Tree
from tiersoak.built import Model, Tiered
from tiersoak.crowd import Asked, Crowd
from tiersoak.memory import Watch
from tiersoak.promises import promises, taken
from tiersoak.small import write_small

RUNNING = 4
"""Conversations at once."""

SAY = 10.0
"""Seconds between two lines."""

SHORT = 3.0
"""Minutes below which memory says nothing."""

WAIT = 0.3
"""As `strata.worker.resident` has it: seconds that others wait for a pass."""

DOZEN = 12


def run(given: argparse.Namespace) -> dict[str, Any]:
    """Numbers, promises, and what was wrong in words."""
    cuda = given.device == "cuda"
    shape = BRIEF if given.brief else BROAD if cuda else NARROW
    path = _file(given)
    model = Model(path, given.device, shape.context, RUNNING, given.threads)
    began = time.monotonic()
    with model.resident() as network:
        tree = Tree(network, shape, given.seed)
        print(f"{tree.count} turns answered in {time.monotonic() - began:.1f} s, all experts on the device", flush=True)
    del network
    gc.collect()
    if cuda:
        torch.cuda.empty_cache()
    with model.tiered(given.share, given.ram) as made:
        scheduler = _scheduler(given, made.network)
        crowd = Crowd(made, scheduler, tree, given.clients, given.seed)
        if cuda:
            _all_once(crowd, tree)
        watch = Watch(torch.device(given.device))
        seconds = _soaked(given, made, scheduler, crowd, watch)
        numbers = _numbers(made, scheduler, crowd, seconds)
        scheduler.close()
        left = taken(made.network)
    kept = promises(crowd.count, watch, left, short=seconds < 60 * SHORT)
    return {
        "command": "python tools/gpu_soak.py " + " ".join(sys.argv[1:]),
        "conditions": conditions({"model": path.parent}) | {"model": path.name, "placed": str(made.placement)},
        "numbers": numbers,
        "memory": {name: None if g is None else {"first": g[0], "last": g[1]} for name, g in watch.grown().items()},
        "promises": [{"promise": one.name, "number": one.number, "kept": one.kept} for one in kept],
        "told": [str(one) for one in kept],
        "wrong": crowd.wrong,
    }


def _file(given: argparse.Namespace) -> Path:
    if given.model is not None:
        return Path(pebble.path("q8_0")) if str(given.model) == "pebble" else given.model
    if given.device == "cpu":
        return write_small(given.scratch / f"strata-soak-{given.seed}.gguf")
    path: Path = given.scratch / "strata-small.gguf"
    if not path.exists():
        command = [sys.executable, "-m", "strata.lab.synthetic", str(path), "--layers", "4"]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": sys.path[0]})
    return path


def _scheduler(given: argparse.Namespace, network: Network) -> Scheduler:
    """As the engine's process has it, with little memory for what is kept, so that it is full soon."""
    c = network.config
    state = sum(mixer.value == "gdn" for mixer in c.mixers) * c.gdn.nv * c.gdn.d**2 * 4
    ram = DOZEN * (state + (1 << 16)) if given.kept is None else int(given.kept * 1e6)
    rows = network.pass_rows if given.device == "cuda" else 64
    return Scheduler(
        network,
        Options(slots=RUNNING, queue=64, ram=ram, step=64, rows=rows, wait=WAIT, same_forms=network.same_forms),
    )


def _all_once(crowd: Crowd, tree: Tree) -> None:
    """Every turn once, before anything is counted: all kernels are loaded, and most shapes of windows recorded."""
    began = time.monotonic()
    for number, turn in enumerate(tree.all()):
        crowd.submit(number, Asked(turn, exact=True))
        if number % RUNNING == RUNNING - 1:
            _drained(crowd)
    _drained(crowd)
    crowd.begin()
    took, wrong = time.monotonic() - began, crowd.wrong or "all of them right"
    print(f"every turn once in tiers in {took:.1f} s, {wrong}", flush=True)


def _drained(crowd: Crowd) -> None:
    while not crowd.idle:
        crowd.tick()


def _soaked(
    given: argparse.Namespace, made: Tiered, scheduler: Scheduler, crowd: Crowd, watch: Watch
) -> float:  # fmt: skip
    """Go on for the minutes, then let all end; returns the seconds it took."""
    began = time.monotonic()
    end, said = min(began + 60 * given.minutes, given.until), began
    resized, faulted = began - given.resize, began
    while (now := time.monotonic()) < end:
        crowd.ask()
        if given.resize and now >= resized + given.resize:
            crowd.resize()
            resized = now
        fault = bool(given.fault) and now >= faulted + given.fault
        faults = crowd.count["faults"]
        crowd.tick(fault=fault)
        if crowd.count["faults"] > faults:
            faulted = now
        watch.once(crowd.level)
        if now >= said + SAY:
            said = now
            print(f"{now - began:7.1f} s  {_line(made, scheduler, crowd, watch)}", flush=True)
    _drained(crowd)
    return time.monotonic() - began


def _line(made: Tiered, scheduler: Scheduler, crowd: Crowd, watch: Watch) -> str:
    count, gauges, stats = crowd.count, made.tier.gauges(), scheduler.stats()
    of = ", ".join(f"{name} {n >> 20 if n > 4096 else n}" for name, n in watch.samples[-1].of.items())
    ops: Any = made.network.ops
    kept = f"{stats.checkpoints} kept, {len(ops.recorded)} records"
    return (
        f"{count['requests']} requests, {count['tokens compared']} tokens compared, {count['wrong']} wrong, "
        f"{count['resizes']} resizes, {gauges['slots_held']} of {gauges['slots']} slots, {kept}; {of}"
    )


def _numbers(made: Tiered, scheduler: Scheduler, crowd: Crowd, seconds: float) -> dict[str, Any]:
    stats, total, gauges = scheduler.stats(), made.tier.total, made.tier.gauges()
    crowd.count["moves"] = made.moves
    ops: Any = made.network.ops
    return {
        "seconds": round(seconds, 1),
        **dict(sorted(crowd.count.items())),
        "a resize (ms), median and most": ", ".join(f"{1e3 * t:.1f}" for t in (median(crowd.took), max(crowd.took)))
        if crowd.took
        else "",
        "windows": made.tier.windows,
        "experts of windows in slots": f"{total.resident / max(1, total.experts):.1%} of {total.experts}",
        "brought, computed by the host": f"{total.link}, {total.host}",
        "experts read from the disk": total.ssd,
        "beginnings known, not known": f"{stats.hits}, {stats.misses}",
        "kept, given up": f"{stats.checkpoints}, {stats.evicted}",
        "records, of windows and others": f"{len(ops.recorded)}, {len(ops._small)}",  # noqa: SLF001  # each has memory
        "slots at the end": gauges["slots"],
    }
