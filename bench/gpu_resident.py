"""All weights in the memory of a GPU: decode, windows, prompts and memory, in alternating rounds.

    python bench/gpu_resident.py MODEL.gguf [--rounds 5] [--json bench/results/h200-resident.json]

There is memory for one conversation, with a third place for states, where a window that is launched ahead leaves its
own; CUDA keeps no stacks that no kernel needs, and torch takes memory in segments that grow, as in the product
(`--pieces`: it does not).
Decode is one greedy answer without drafts, token by token through the engine, an empty context and one behind --depth
tokens, which are read anew each time. A window of four rows has four different tokens of one conversation; its time is
that of the window and the commit of one row, as for one row. Prompts are read into a new conversation until the first
token is known. In every round each arm runs once; the order turns around from round to round. `memory` in the results
says what the device's memory went to: what CUDA took before anything was there and at the end, what torch holds and
what of it is in use, and by arm what it used at its worst moment beyond what stays, and what torch held afterwards the
first time.
"""

import argparse
import gc
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from strata.engine import Drafting, Generation, Request, Sampling, step
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.segments import growing
from strata.ops.gpu.size import USUAL, live_bytes
from strata.ops.gpu.stacks import small_stacks
from strata.ops.gpu.upload import Upload

if TYPE_CHECKING:
    from collections.abc import Callable

GREEDY = Sampling(temperature=0.0)


class Bench:
    """A model on the device, and what is measured on it.

    Args:
        file: the model.
        context: cells of attention in all.
        depth: tokens before the deep arm's decode.
        tokens: of a decode.
        rows: of the longest prompt pass.
        pieces: torch takes memory in pieces, not in segments that grow.
    """

    def __init__(self, file: Path, context: int, depth: int, tokens: int, rows: int, *, pieces: bool) -> None:
        device = torch.device("cuda")
        torch.empty(1, device=device)
        small_stacks(device)
        self.depth, self.tokens, self.rounds = depth, tokens, 0
        self.memory: dict[str, Any] = {"cuda_at_first_gb": _gb(_beside())}
        self.arms: dict[str, dict[str, float]] = {}
        began = time.monotonic()
        directory = open_model(file)
        config = replace(load_config(directory.metadata), mtp=False)
        config = replace(config, context=min(config.context, context))
        self.memory["segments_grow"] = not pieces and growing(device)
        weights = Upload(device).all(load_weights(directory, config))
        torch.cuda.synchronize()
        self.load_seconds = time.monotonic() - began
        gc.collect()
        torch.cuda.empty_cache()
        self.weight_bytes = torch.cuda.memory_allocated()
        self.memory["cuda_with_weights_gb"] = _gb(_beside())
        pool = Pool(config, device, slots=1, cells=context, ahead=True)
        self.kv_bytes = sum(t.nbytes for group in (pool.keys, pool.values, pool.raw, pool.blocks) for t in group)
        self.ops = GpuOps(config, pool, device)
        self.ops.lacks(None, rows=rows)
        self.pool, self.rows = pool, rows
        self.net = Network(config, weights, self.ops)

    def ids(self, count: int) -> list[int]:
        """Tokens of no text, other ones in every call."""
        self.rounds += 1
        dice = random.Random(self.rounds)
        return [dice.randrange(1000, 200_000) for _ in range(count)]

    def decode(self, depth: int = 0) -> float:
        """Tokens a second of one greedy answer behind so many tokens and eight more."""
        prompt = self.ids(depth + 8)
        request = Request("", tuple(prompt), sampling=GREEDY, max_tokens=self.tokens, drafting=Drafting(depth=0))
        answer = Generation(self.net, self.net.new_state(), request)
        while answer.reading:
            answer.read()
        torch.cuda.synchronize()
        first, began = answer.tokens, time.perf_counter()
        while not answer.finished:
            step(self.net, [answer])
        torch.cuda.synchronize()
        return (answer.tokens - first) / (time.perf_counter() - began)

    def decode_deep(self) -> float:
        """The same behind a long text."""
        return self.decode(self.depth)

    def window(self, rows: int) -> float:
        """Milliseconds of a window and the commit of one row."""
        state = self.net.new_state()
        self.net.read(state, self.ids(8))
        times = []
        for _ in range(self.tokens // 2):
            ids = self.ids(rows)
            torch.cuda.synchronize()
            began = time.perf_counter()
            done = self.net.window([(state, ids)])[0]
            self.net.commit(state, done, 1)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - began)
        return 1e3 * statistics.median(times)

    def first_token(self, count: int) -> float:
        """Seconds from a prompt to its first token."""
        request = Request("", tuple(self.ids(count)), sampling=GREEDY, max_tokens=1, drafting=Drafting(depth=0))
        answer = Generation(self.net, self.net.new_state(), request)
        torch.cuda.synchronize()
        began = time.perf_counter()
        while not answer.finished:
            answer.read() if answer.reading else step(self.net, [answer])
        torch.cuda.synchronize()
        return time.perf_counter() - began

    def nodes(self) -> int:
        """Nodes of the graph of a one-row window."""
        from torch.profiler import ProfilerActivity, profile

        graph = self.ops.recorded[1,][0]
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            graph.replay()
            torch.cuda.synchronize()
        return sum(str(event.device_type).endswith("CUDA") for event in seen.events())

    def watched(self, name: str, arm: "Callable[[], float]") -> float:
        """An arm, and what it used."""
        gc.collect()
        torch.cuda.reset_peak_memory_stats()
        stays = torch.cuda.memory_allocated()
        value = arm()
        seen = {"peak_gb": _gb(torch.cuda.max_memory_allocated() - stays), "held_gb": _gb(torch.cuda.memory_reserved())}
        self.arms.setdefault(name, seen)
        return value

    def overhead(self) -> dict[str, Any]:
        """What the device's memory went to, in GB; `beside_gb` is all but weights and attention cells."""
        gc.collect()
        torch.cuda.synchronize()
        pool, held, used = self.pool, torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
        states = sum(t.nbytes for t in (pool.states, pool.tails, pool.ngram_tails, pool.history, pool.table))
        recorded = sum(
            one["total_size"]
            for one in torch.cuda.memory_snapshot()
            if tuple(one.get("segment_pool_id", (0, 0))) != (0, 0)
        )
        beside = _used() - self.weight_bytes - self.kv_bytes
        return self.memory | {
            "cuda_at_the_end_gb": _gb(_beside()),
            "weights_gb": _gb(self.weight_bytes),
            "kv_gb": _gb(self.kv_bytes),
            "states_gb": _gb(states),
            "in_use_gb": _gb(used - self.weight_bytes - self.kv_bytes - states),
            "recorded_gb": _gb(recorded),
            "held_for_later_gb": _gb(held - used),
            "pass_rows": self.rows,
            "pass_live_gb": _gb(live_bytes(self.net.config, self.rows)),
            "beside_gb": _gb(beside),
            "beside_without_states_gb": _gb(beside - states),
            "arms": self.arms,
        }


def _used() -> int:
    free, total = torch.cuda.mem_get_info()
    return total - free


def _beside() -> int:
    """Bytes that are not torch's: CUDA's own, modules, graphs, stacks of kernels, and other programs."""
    return _used() - torch.cuda.memory_reserved()


def _gb(nbytes: float) -> float:
    return round(nbytes / 1e9, 4)


def conditions(arguments: list[str]) -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    import triton

    query = "name,driver_version,clocks.sm,clocks.mem,power.draw"
    asked = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    found = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    versions = {"python": platform.python_version(), "torch": torch.__version__, "triton": triton.__version__}
    command = " ".join(["python", "bench/gpu_resident.py", *arguments])
    return {"command": command, query: found, "cores": os.cpu_count(), "versions": versions}


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--depth", type=int, default=32768)
    parser.add_argument("--rows", type=int, default=USUAL, help="of the longest prompt pass")
    parser.add_argument("--pieces", action="store_true", help="no segments that grow")
    parser.add_argument("--arms", nargs="+", help="only these")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    context = given.depth + 4096
    bench = Bench(given.model, context, given.depth, given.tokens, given.rows, pieces=given.pieces)
    print(f"loaded in {bench.load_seconds:.1f} s, {bench.weight_bytes / 1e9:.2f} GB of weights", flush=True)
    arms: dict[str, Callable[[], float]] = {
        "plain_decode_tps": bench.decode,
        "plain_decode_32k_tps": bench.decode_deep,
        "window1_ms": lambda: bench.window(1),
        "window4_ms": lambda: bench.window(4),
        "window8_ms": lambda: bench.window(8),
        "prompt_4096_tps": lambda: 4096 / bench.first_token(4096),
        "prompt_512_tps": lambda: 512 / bench.first_token(512),
        "ttft_17_ms": lambda: 1e3 * bench.first_token(17),
    }
    arms = {name: arm for name, arm in arms.items() if not given.arms or name in given.arms}
    values: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(-1, given.rounds):  # the first warms up: graphs are recorded, kernels compiled
        for name in list(arms) if turn % 2 else reversed(list(arms)):
            began = time.monotonic()
            value = bench.watched(name, arms[name])
            if turn < 0:
                print(f"{name}: first time {time.monotonic() - began:.1f} s", flush=True)
            if turn >= 0:
                values[name].append(round(value, 3))
        print({name: some[-1] for name, some in values.items() if some}, flush=True)
    if not given.rounds or given.arms:
        print(json.dumps(bench.overhead(), indent=1))
        return
    figures = {name: statistics.median(some) for name, some in values.items()}
    ratios = [four / one for four, one in zip(values["window4_ms"], values["window1_ms"], strict=True)]
    figures["window4_ratio"] = round(statistics.median(ratios), 3)
    memory = bench.overhead()
    figures["vram_overhead_gb"] = memory["beside_gb"]
    figures["nodes_per_window"] = bench.nodes()
    figures["load_seconds"] = round(bench.load_seconds, 1)
    for name, value in figures.items():
        print(f"{name:24} {value:10.3f}")
    print(json.dumps(memory, indent=1))
    if given.json:
        document = {"conditions": conditions(sys.argv[1:]), "rounds": values, "figures": figures, "memory": memory}
        given.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    torch.inference_mode()(main)()
