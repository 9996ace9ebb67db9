"""Experts in tiers on a GPU, from a bare checkout: the same bytes first, then speed.

    python tools/gpu_tiers.py [--model FILE] [--json bench/results/h200-tiers.json] [--only correct none ...]

1. *correct*: a file of four layers in the released shapes; predictions of windows of 1, 2, 4 and 8 rows, eager and
   replayed, with 0%, a third and all of the experts in slots, every split, slots changing between windows, byte for
   byte against the network that has them all; a worker that dies and one that stalls fail their window and no other.
2. *speed*: the 126-billion-parameter file of `strata.lab.synthetic` (54 GiB, written to --scratch if not there): all
   resident, none, half (the experts of the last half of the layers, as a layer split places them), and caps of 24 and
   12 GB with skewed routing and slots that learn. With each: hit rate, misses by tier, union of experts, host wait.

Needs torch, Triton, NumPy and Numba. Results are written as they come, beside what others have written to the file.
Exits with 1 if a byte differs. Arms run one after the other, each with its own warm-up; rounds are kept.
"""

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from strata.engine import Drafting, Generation, Request, Sampling, step
from strata.errors import TierError
from strata.experts.kernels.cached import task_function
from strata.experts.misses import Costs
from strata.experts.pool.region import LOST
from strata.gguf import open_model
from strata.loading import gpu, tiers
from strata.memory.slots import Move, SlotCache
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from strata.ops.tiers import measure
from strata.ops.tiers import ram as rams
from strata.ops.tiers.tier import Tier, TierOptions

DEVICE = torch.device("cuda")
CONTEXT = 8192
PARTS = ("correct", "resident", "none", "half", "cap24", "cap12")
SKEW = 0.86
"""Share of visits that the most visited third of the experts gets: published hit rates at 32% are 83 to 90%."""


class Fixed:
    """A cache that never changes its mind."""

    def __init__(self, layers: int, experts: int, wanted: list[tuple[int, int]]) -> None:
        self.slot_of = np.full((layers, experts), -1, np.int32)
        self._next = [Move(layer, expert, slot) for slot, (layer, expert) in enumerate(wanted)]

    def seen(self, visits: Any) -> None:
        """Nothing is learned."""

    def moves(self, most: int, busy: Any = None) -> list[Move]:  # noqa: ARG002
        """What was wanted at the start."""
        now, self._next = self._next[:most], self._next[most:]
        return now

    def begin(self, move: Move) -> None:
        """Slots were empty."""

    def landed(self, move: Move) -> None:
        """It is there."""
        self.slot_of[move.layer, move.expert] = move.slot


class Model:
    """A file, and networks of it."""

    def __init__(self, path: Path) -> None:
        self.directory = directory = open_model(path)
        config = replace(load_config(directory.metadata), mtp=False)
        self.config = replace(config, context=min(config.context, CONTEXT), qsa=replace(config.qsa, kv=gpu.KV))
        self.weights = replace(load_weights(directory, self.config), mtp=None)
        self.moes = [layer.moe for layer in self.weights.layers]
        self.kinds, self.experts = rams.layouts(self.moes), rams.described(self.moes)
        self.sizes = sorted({kind.nbytes for kind in self.kinds})
        self.classes = [self.sizes.index(kind.nbytes) for kind in self.kinds]
        self.ram: rams.Ram | None = None

    def arena(self) -> rams.Ram:
        """All experts where the GPU reaches them; made once."""
        if self.ram is None:
            began = time.monotonic()
            found = rams.registered(self.moes)
            self.how = "the file's pages, registered" if found else "copied to locked memory"
            self.ram = found or rams.pinned(self.moes)
            print(f"experts in RAM: {self.how}, {time.monotonic() - began:.1f} s", flush=True)
        return self.ram

    def network(self, cache: Any = None, slots: tuple[int, ...] = (), options: TierOptions | None = None, *,
                skew: float = 0.0) -> tuple[Network, Tier | None]:  # fmt: skip
        """With all experts on the device, or with those that a cache says."""
        tier = None
        if cache is not None:
            topk = self.config.moe.topk
            tier = Tier(
                self.kinds,
                self.experts,
                self.arena(),
                cache,
                self.classes,
                slots,
                topk,
                DEVICE,
                options or TierOptions(),
            )
            tier.fill()
        moved = Upload(DEVICE, tier=tier).all(self.weights)
        if skew:
            for number, layer in enumerate(moved.layers):
                spread = torch.randn(self.config.moe.E, generator=torch.Generator().manual_seed(number))
                layer.moe.choosing[: self.config.moe.E] *= (skew * spread).exp()[:, None].to(DEVICE)
        pool = Pool(self.config, DEVICE, slots=4, cells=3 * self.config.context)

        coming = tiers.prompts(tier, moved, self.config, DEVICE)

        def made(*, graphs: bool) -> Network:
            ops = GpuOps(self.config, pool, DEVICE, graphs=graphs, tier=tier)
            ops.lacks(coming)
            return Network(self.config, moved, ops)

        card = gpu.find("cuda")
        assert card is not None
        with tiers.still(tier):
            gpu.compile_ahead(made(graphs=False), card)
        return made(graphs=True), tier


def skew_of(share: float, experts: int, topk: int) -> float:
    """How unequal rows of a router have to be for the most visited third to get such a share. By simulation."""
    dice = np.random.default_rng(1)
    spread, noise = dice.standard_normal(experts), dice.standard_normal((4000, experts))
    low, high = 0.0, 3.0
    for _ in range(20):
        middle = (low + high) / 2
        chosen = np.argpartition(-noise * np.exp(middle * spread), topk, axis=1)[:, :topk]
        counts = np.sort(np.bincount(chosen.reshape(-1), minlength=experts))[::-1]
        low, high = (middle, high) if counts[: round(0.32 * experts)].sum() < share * counts.sum() else (low, middle)
    return low


def ids(seed: int, count: int, vocabulary: int) -> list[int]:
    """Tokens of no text."""
    dice = random.Random(seed)
    return [dice.randrange(1000, min(200_000, vocabulary)) for _ in range(count)]


def windows(network: Network, seed: int, times: int) -> list[bytes]:
    """Predictions of windows of several shapes, each met often enough to be recorded."""
    state, found = network.new_state(), []
    for turn in range(times):
        for rows in (1, 2, 4, 8):
            done = network.window([(state, ids(seed + 100 * turn + rows, rows, network.config.V))])
            found.append(network.predictions(done).tobytes())
            network.commit(state, done[0], 1)
    return found


def correct(path: Path, times: int) -> dict[str, Any]:
    """Bytes in every placement, and faults."""
    model = Model(path)
    network, _ = model.network()
    expected = windows(network, 7, times)
    del network
    layers, each = len(model.moes), model.config.moe.E
    result: dict[str, Any] = {"windows": len(expected), "different": 0, "faults": []}
    for share in (0.0, 1 / 3, 1.0):
        for name, costs in (("host", Costs(1, 1e6)), ("link", Costs(1e6, 1)), ("both", Costs(1, 1))):
            total = tuple(round(share * each * model.classes.count(i)) for i in range(len(model.sizes)))
            cache = SlotCache(model.sizes, model.classes, total, experts=each)
            options = TierOptions(tiers.processors(None), costs, every=1, moves=64)
            network, tier = model.network(cache, total, options)
            assert tier is not None
            found = windows(network, 7, times)
            wrong = sum(a != b for a, b in zip(expected, found, strict=True))
            result["different"] += wrong
            result[f"{share:.0%} {name}"] = {
                "different": wrong,
                **asdict(tier.total),
                "messages": tier.host.stats().messages,
            }
            print(f"{share:.0%} {name}: {wrong} of {len(found)} differ; {tier.total}", flush=True)
            tier.close()
            del network, tier
            gc.collect()
    result["faults"] = faults(model, layers, each)
    result["failed"] = int(result["different"] > 0 or not all(result["faults"].values()))
    return result


def faults(model: Model, layers: int, each: int) -> dict[str, bool]:
    """A worker that dies, and one that stalls beyond the window's patience: the window fails, the next is right."""
    lost, gate = LOST, np.zeros(1, np.int64)
    at = gate.ctypes.data
    from strata.experts.pool.atomics import load, pause

    def die(task: int, first: int, last: int) -> int:  # noqa: ARG001
        return lost

    def stall(task: int, first: int, last: int) -> int:  # noqa: ARG001
        while load(at) == 0:
            pause()
        return 0

    codes = {"dies": task_function(die), "stalls": task_function(stall)}
    options = TierOptions(tiers.processors(None), Costs(1, 1e6), patience=0.5, every=0)
    network, tier = model.network(Fixed(layers, each, []), (1,) * len(model.sizes), options)
    assert tier is not None
    expected, found = windows(network, 9, 2), {}
    for name, code in codes.items():
        words = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 11).from_address(model.experts[1].down.address))
        before, words[4] = int(words[4]), code.address
        began = time.monotonic()
        try:
            windows(network, 9, 1)
            failed = ""
        except TierError as error:
            failed = str(error)
        took = time.monotonic() - began
        words[4], gate[0] = before, 1
        time.sleep(0.5)
        right = windows(network, 9, 2) == expected
        found[name] = bool(failed) and "layer 1" in failed and took < 20 and right
        print(
            f"a worker {name}: {took:.2f} s; {failed or 'nothing was noticed'}; afterwards right: {right}", flush=True
        )
    tier.close()
    return found


def decode(network: Network, tokens: int, seed: int) -> float:
    """Tokens a second of one greedy answer, token by token through the engine."""
    request = Request("", tuple(ids(seed, 8, network.config.V)), sampling=Sampling(temperature=0.0), max_tokens=tokens,
                      drafting=Drafting(depth=0))  # fmt: skip
    answer = Generation(network, network.new_state(), request)
    while answer.reading:
        answer.read()
    torch.cuda.synchronize()
    first, began = answer.tokens, time.perf_counter()
    while not answer.finished:
        step(network, [answer])
    torch.cuda.synchronize()
    return (answer.tokens - first) / (time.perf_counter() - began)


def window(network: Network, rows: int, count: int, seed: int) -> float:
    """Median milliseconds of a window and the commit of one row."""
    state, times = network.new_state(), []
    network.read(state, ids(seed, 8, network.config.V))
    for turn in range(count):
        torch.cuda.synchronize()
        began = time.perf_counter()
        done = network.window([(state, ids(seed + turn, rows, network.config.V))])[0]
        network.commit(state, done, 1)
        network.ops.check()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def arm(model: Model, name: str, rounds: int, tokens: int) -> dict[str, Any]:
    """One placement's rounds."""
    layers, each = len(model.moes), model.config.moe.E
    capped = name.startswith("cap")
    skew = skew_of(SKEW, each, model.config.moe.topk) if capped or name == "resident" else 0.0
    tier, base = None, TierOptions(tuple(tiers.processors(None)), room=tiers.ROOM)
    if name == "resident":
        network, _ = model.network(skew=skew)
    elif capped:
        card = gpu.find("cuda")
        assert card is not None
        made = gpu.plan_for(card, model.directory, model.config, 1, vram=int(name[3:]) * 10**9, drafts=False)
        slots = tuple(sum(one.in_vram for one in made.classes if one.slot == size) for size in model.sizes)
        cache = SlotCache(model.sizes, model.classes, slots, experts=each)
        network, tier = model.network(cache, slots, base, skew=skew)
    else:
        wanted = [(i, e) for i in range(layers // 2, layers) for e in range(each)] if name == "half" else []
        by_class = [[pair for pair in wanted if model.classes[pair[0]] == i] for i in range(len(model.sizes))]
        cache = Fixed(layers, each, [])
        cache._next = [Move(i, e, slot) for some in by_class for slot, (i, e) in enumerate(some)]  # noqa: SLF001
        slots = tuple(max(1, len(some)) for some in by_class)
        network, tier = model.network(cache, slots, replace(base, every=0))
    found: dict[str, Any] = {"skew": round(skew, 3)}
    if tier is not None:
        costs = measure.calibrate(tier)
        found |= {"slots": int((tier.cache.slot_of >= 0).sum()), "costs": asdict(costs)}
        found["split"] = tier.split[:41].tolist()
        print(name, costs, flush=True)
    values: dict[str, list[float]] = {"decode_tps": [], "window1_ms": [], "window4_ms": []}
    if capped:
        window(network, 4, 400, 1)  # slots learn
    for turn in range(-1, rounds):
        before = None if tier is None else tier.total
        round_ = {
            "decode_tps": decode(network, tokens, 10 + turn),
            "window1_ms": window(network, 1, tokens // 2, 1000 * turn),
            "window4_ms": window(network, 4, tokens // 2, 2000 * turn),
        }  # fmt: skip
        if turn >= 0:
            for key, value in round_.items():
                values[key].append(round(value, 3))
        if tier is not None and before is not None:
            met = tier.total - before
            found["met"] = asdict(met) | {"hit_rate": round(met.hit_rate, 4)}
        print(name, round_, found.get("met"), flush=True)
    found |= {"rounds": values, "medians": {key: statistics.median(some) for key, some in values.items()}}
    if tier is not None:
        window(network, 4, 64, 77)
        last = tier.last
        found["window4"] = asdict(last) | {"hit_rate": round(last.hit_rate, 4)}
        found["host"] = asdict(tier.host.stats())
        tier.close()
    return found


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--times", type=int, default=6, help="windows of each shape whose bytes are compared")
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-tiers.json")
    given = parser.parse_args()
    document: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    figures = document.setdefault("figures", {})
    document["conditions"] = document.get("conditions", {}) | {
        "gpu": torch.cuda.get_device_name(0), "torch": torch.__version__, "cores": os.cpu_count(),
        "tiers": f"{given.rounds} rounds, {given.tokens} tokens, context {CONTEXT}, arms one after another",
    }  # fmt: skip

    def keep() -> None:
        given.json.write_text(json.dumps(document, indent=1) + "\n")

    def synthetic(path: Path, *more: str) -> Path:
        if not path.exists():
            command = [sys.executable, "-m", "strata.lab.synthetic", str(path), *more]
            subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
        return path

    if "correct" in given.only:
        document["correct"] = correct(synthetic(given.scratch / "strata-small.gguf", "--layers", "4"), given.times)
        keep()
        if document["correct"]["failed"]:
            return 1
    arms = [name for name in PARTS[1:] if name in given.only]
    if arms:
        model = Model(given.model or synthetic(given.scratch / "strata-synthetic.gguf"))
        for name in arms:
            document[name] = arm(model, name, given.rounds, given.tokens)
            gc.collect()
            torch.cuda.empty_cache()
            medians = document[name]["medians"]
            if name in {"none", "half"}:
                figures[f"{name}_resident_tps"] = medians["decode_tps"]
            elif name.startswith("cap") and "resident" in document:
                figures[f"{name}_window_ratio"] = round(
                    medians["window4_ms"] / document["resident"]["medians"]["window4_ms"], 3
                )
            keep()
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
