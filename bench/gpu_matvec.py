"""Products of a layer on a GPU: microseconds by shape, rows and tile, each behind the small kernel it waits for.

A cell is a CUDA graph of pairs: rows are quantised, then a matrix is multiplied with them, another one each time, at
least 300 MB of weights in turn, so that nothing comes from L2 that would not in use. From the median of replays
the time of as many quantisers alone is taken off: what is left is what the product adds to a chain of dependent
kernels, start included. Weights are random bytes; experts are ten a row, drawn from 512.

    python bench/gpu_matvec.py                        # every shape of the model, and bench/results/gpu-matvec.json
    python bench/gpu_matvec.py --only down --rows 1 4
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import torch

from strata.ops.experts import triton as experts
from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.matvec import floats
from strata.ops.matvec import triton as matvec
from strata.ops.planes import layout
from strata.ops.variants import Tile

RESULT = Path(__file__).parent / "results" / "gpu-matvec.json"
ROTATED = 300_000_000  # bytes
WIDE = Tile(rows=1, step=32)
HIDDEN_TILES = (
    Tile(tiles=2), Tile(tiles=4, ahead=2), Tile(rows=8, warps=4), Tile(rows=8, tiles=2, warps=4),
    Tile(rows=8, tiles=2, warps=4, ahead=2), Tile(rows=16, warps=8), Tile(rows=16, tiles=2, warps=8, ahead=2),
    Tile(rows=8, tiles=3, warps=4, ahead=2), Tile(rows=8, tiles=4, warps=4, ahead=2), Tile(rows=4, tiles=3, warps=2),
)  # fmt: skip
LONG_TILES = (
    Tile(ahead=12), Tile(rows=4, warps=2, ahead=12), Tile(rows=8, warps=4, ahead=12), Tile(rows=8, warps=4, ahead=6),
    Tile(rows=4, step=32, warps=4, ahead=6), Tile(rows=2, step=32, warps=2, ahead=6),
    Tile(rows=4, step=32, warps=4, ahead=3),
)  # fmt: skip
LOW_TILES = (replace(WIDE, ahead=10), Tile(rows=2, step=32, warps=2, ahead=10), replace(WIDE, ahead=8))
UP_TILES = (
    Tile(tiles=4, ahead=1),
    Tile(rows=4, tiles=2, step=8, ahead=2),
    Tile(rows=16, tiles=2, step=8, warps=4, ahead=2),
)
PAIR_TILES = (
    Tile(), Tile(rows=8, warps=4), Tile(rows=8, warps=4, ahead=2), Tile(rows=16, warps=8),
    Tile(rows=8, warps=4, pairs=1), Tile(rows=4, warps=2, pairs=1), Tile(rows=8, warps=4, registers=128),
    Tile(rows=8, warps=4, ahead=3, registers=96), Tile(rows=8, warps=4, ahead=3, pairs=1),
)  # fmt: skip
SHORT = Tile(rows=8, step=4)
SHORT_TILES = (
    replace(SHORT, rows=16, warps=2), replace(SHORT, rows=32, warps=4), replace(SHORT, rows=64, warps=8),
    replace(SHORT, rows=32, warps=4, tiles=2), replace(SHORT, rows=32, warps=4, tiles=2, ahead=2),
    replace(SHORT, rows=16, warps=2, tiles=2),
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One shape of the model, and the tiles to try; ``others`` are further matrices of the same launch."""

    name: str
    op: str
    type: str
    n: int
    k: int
    tiles: tuple[Tile | None, ...]
    others: tuple[tuple[str, int], ...] = ()


CASES = (
    Case("gate_up.all", "gate_up", "IQ3_XXS", 640, 2560, PAIR_TILES, (("Q5_K", 640),)),
    Case("down.all", "down", "IQ4_NL", 2560, 640, SHORT_TILES, (("Q8_0", 2560),)),
    Case("gdn.qkv", "matvec", "Q5_K", 10240, 2560, HIDDEN_TILES),
    Case("gdn.z", "matvec", "Q5_K", 6144, 2560, HIDDEN_TILES),
    Case("gdn.out", "matvec", "Q6_K", 2560, 6144, LONG_TILES),
    Case("qsa.q", "matvec", "Q5_K", 12288, 2560, HIDDEN_TILES),
    Case("qsa.k", "matvec", "Q5_K", 512, 2560, HIDDEN_TILES),
    Case("qsa.out", "matvec", "Q5_K", 2560, 6144, LONG_TILES),
    Case("hc.down", "matvec", "Q8_0", 320, 10240, LOW_TILES),
    Case("hc.up", "matvec", "Q8_0", 10240, 320, UP_TILES),
    Case("head", "matvec", "Q4_K", 248320, 2560, HIDDEN_TILES),
    Case("router", "floats", "F32", 513, 2560, (None,)),
    Case("gates", "floats", "F32", 96, 2560, (None,)),
    Case("qsa.iq", "floats", "BF16", 512, 2560, (None,)),
    Case("gate_up", "gate_up", "IQ3_XXS", 640, 2560, PAIR_TILES),
    Case("gate_up as 4 bits", "gate_up", "IQ4_XS", 640, 2560, (*PAIR_TILES[:4], *PAIR_TILES[7:])),
    Case("down", "down", "IQ4_NL", 2560, 640, SHORT_TILES),
    Case("shared.gate_up", "shared_gate_up", "Q5_K", 640, 2560, PAIR_TILES),
    Case("shared.down", "shared_down", "Q8_0", 2560, 640, SHORT_TILES),
)


def timed(launches: list[Callable[[], object]], replays: int = 11) -> float:
    """Median microseconds of a launch in a graph of all of them."""
    launches[0]()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for launch in launches:
            launch()
    graph.replay()
    times = []
    for _ in range(replays):
        began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        began.record()
        graph.replay()
        ended.record()
        ended.synchronize()
        times.append(1000 * began.elapsed_time(ended) / len(launches))
    return statistics.median(times)


@cache
def pool() -> torch.Tensor:
    """Random bytes on the device: weights of every matrix."""
    return torch.randint(0, 256, (1_400_000_000,), dtype=torch.uint8, device="cuda")


def random_rows(rows: int, width: int) -> torch.Tensor:
    """Activations."""
    return torch.randn((rows, width), device="cuda")


@cache
def alone(rows: int, width: int) -> float:
    """Microseconds of a quantiser in a chain of them."""
    x, room = random_rows(rows, width), matvec.empty_activations(rows, width, torch.device("cuda"))
    return timed([lambda: matvec.quantise(x, room)] * 50)


def behind(rows: int, width: int, launches: list[Callable[[matvec.Activations, torch.Tensor], object]]) -> float:
    """Microseconds that launches add behind quantisers of so many rows."""
    x, room = random_rows(rows, width), matvec.empty_activations(rows, width, torch.device("cuda"))
    pairs = [lambda launch=launch: (matvec.quantise(x, room), launch(room, x)) for launch in launches]
    return timed(pairs) - alone(rows, width)


def copies(nbytes: int, *, compile_only: bool) -> int:
    """How many different matrices are taken in turn."""
    return 1 if compile_only else max(1, min(120, -(-ROTATED // nbytes)))


def dense(case: Case, rows: int, tile: Tile | None, *, compile_only: bool) -> tuple[float, float]:
    """A quantised matrix: microseconds and bytes."""
    n = 64 if compile_only else case.n
    nbytes = layout(case.type).nbytes(n, case.k)
    step, out = nbytes // 512 * 512 + 512, torch.empty((rows, n), device="cuda")
    data = torch.zeros(nbytes, dtype=torch.uint8, device="cuda") if compile_only else pool()
    found = [
        matvec.PlaneMatrix(case.type, n, case.k, data[i * step : i * step + nbytes])
        for i in range(copies(nbytes, compile_only=compile_only))
    ]
    if compile_only:
        matvec.product(found[0], matvec.quantise(random_rows(rows, case.k)), out, tile)
        return 0.0, 0.0
    launches = [lambda x, _, w=w: matvec.product(w, x, out, tile) for w in found]
    return behind(rows, case.k, launches * max(1, 16 // len(found))), nbytes


def float_matrix(case: Case, rows: int, *, compile_only: bool) -> tuple[float, float]:
    """A float matrix: microseconds and bytes."""
    dtype = torch.float32 if case.type == "F32" else torch.bfloat16
    nbytes, out = case.n * case.k * dtype.itemsize, torch.empty((rows, case.n), device="cuda")
    if compile_only:
        floats.product(torch.zeros((case.n, case.k), dtype=dtype, device="cuda"), random_rows(rows, case.k), out)
        return 0.0, 0.0
    data = pool()[: copies(nbytes, compile_only=False) * nbytes].view(dtype).view(-1, case.n, case.k)
    return behind(rows, case.k, [lambda _, x, w=w: floats.product(w, x, out) for w in data]), nbytes


def slots_of(case: Case, count: int) -> Slots:
    """Slots of random bytes, expert e in slot e."""
    pair = case.op.endswith("gate_up")
    kinds = (case.type, case.type, "Q8_0") if pair else ("Q2_0", "Q2_0", case.type)
    found = SlotLayout(*kinds, case.k if pair else case.n, case.n if pair else case.k)
    data = pool()[: count * found.nbytes].view(count, -1) if count > 1 else None
    if data is None:
        data = torch.zeros((1, found.nbytes), dtype=torch.uint8, device="cuda")
    return Slots(found, data, torch.arange(count, dtype=torch.int32, device="cuda"))


def routed(case: Case, rows: int, tile: Tile | None, *, compile_only: bool) -> tuple[float, float]:
    """Experts' gate and up, or down: microseconds and bytes."""
    count = 16 if compile_only else min(512, pool().numel() // slots_of(case, 1).layout.nbytes)
    slots = slots_of(case, count) if not compile_only else replace(slots_of(case, 1), slot_of=torch.zeros(
        16, dtype=torch.int32, device="cuda"))  # fmt: skip
    torch.manual_seed(0)
    plans = []
    for _ in range(1 if compile_only else 24):
        ids = torch.stack([torch.randperm(count)[:10] for _ in range(rows)]).to(torch.int32).cuda()
        plans.append(experts.plan(ids, slots))
    return _grouped(case, rows, tile, slots, plans, compile_only=compile_only)


def shared(case: Case, rows: int, tile: Tile | None, *, compile_only: bool) -> tuple[float, float]:
    """The shared expert's, for every row: one of many such experts in turn."""
    whole = slots_of(case, 1)
    count = copies(whole.layout.nbytes, compile_only=compile_only)
    data = torch.zeros((1, whole.layout.nbytes), dtype=torch.uint8, device="cuda") if compile_only else pool()[
        : count * whole.layout.nbytes].view(count, -1)  # fmt: skip
    many = [replace(whole, data=one[None], slot_of=torch.zeros(1, dtype=torch.int32, device="cuda")) for one in data]
    plan = experts.plan(torch.zeros((rows, 1), dtype=torch.int32, device="cuda"), many[0])
    return _grouped(case, rows, tile, many, [plan] * len(many), compile_only=compile_only)


def _grouped(
    case: Case, rows: int, tile: Tile | None, slots: Slots | list[Slots], plans: list[experts.Plan], *,
    compile_only: bool,
) -> tuple[float, float]:  # fmt: skip
    many = slots if isinstance(slots, list) else [slots] * len(plans)
    up = case.op.endswith("gate_up")
    extra = [None] * len(plans)
    if case.others:
        kind, whole = case.others[0][0], many[0].layout
        found = replace(whole, gate=kind, up=kind) if up else replace(whole, down=kind)
        data = pool()[-(found.nbytes * len(plans)) // 512 * 512 :]
        extra = [
            Slots(found, data[i * found.nbytes : (i + 1) * found.nbytes][None], many[0].slot_of)
            for i in range(len(plans))
        ]
    pairs = plans[0].pairs_in_all + (rows if case.others else 0)
    count, run = (rows, experts.gate_up) if up else (pairs, experts.down)
    out = torch.empty((pairs, case.n), device="cuda")
    if compile_only:
        run(many[0], matvec.quantise(random_rows(count, case.k)), plans[0], out, tile, extra[0])
        return 0.0, 0.0
    launches = [
        lambda x, _, s=s, p=p, e=e: run(s, x, p, out, tile, e) for s, p, e in zip(many, plans, extra, strict=True)
    ]
    one = layout(case.type).nbytes(case.n, case.k) * (2 if up else 1)
    return behind(count, case.k, launches), one * statistics.mean(int(p.totals[0]) for p in plans[:24])


def run(case: Case, rows: int, tile: Tile | None, *, compile_only: bool) -> tuple[float, float]:
    """Measure one cell, or only compile it."""
    if case.op == "matvec":
        return dense(case, rows, tile, compile_only=compile_only)
    if case.op == "floats":
        return float_matrix(case, rows, compile_only=compile_only)
    return (shared if case.op.startswith("shared") else routed)(case, rows, tile, compile_only=compile_only)


def compile_some(some: list[tuple[Case, int, Tile | None]]) -> None:
    """In a process of its own: fill Triton's cache on disk."""
    for case, rows, tile in some:
        run(case, rows, tile, compile_only=True)


def compile_all(cells: list[tuple[Case, int, Tile | None]], jobs: int) -> None:
    """Compile each distinct kernel once, in parallel."""
    distinct = {(c.op, c.type, c.k, c.others, rows, tile): (c, rows, tile) for c, rows, tile in cells}
    todo = list(distinct.values())
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        list(workers.map(compile_some, [todo[i::jobs] for i in range(jobs)]))


def conditions() -> dict[str, object]:
    """The machine as it was found."""
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,power.limit"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    seen = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return {
        query: seen,
        "capability": torch.cuda.get_device_capability(),
        "versions": {name: version(name) for name in ("torch", "triton", "numpy")},
        "python": sys.version.split()[0],
    }


def spelled(tile: Tile | None) -> str:
    """A tile in a few letters: rows x blocks, tiles, warps, steps ahead."""
    if tile is None:
        return "chosen"
    return f"{tile.rows}x{tile.step}" + f"*{tile.tiles}" * (tile.tiles > 1) + f"w{tile.warps}" * (
        tile.warps > 1) + f"+{tile.ahead}" + f"p{tile.pairs}" * (tile.pairs != 2) + f"r{tile.registers}" * (
        tile.registers > 0)  # fmt: skip


def chosen_cells(arguments: argparse.Namespace) -> Iterator[tuple[Case, int, Tile | None]]:
    """What to measure."""
    for case in CASES:
        if not arguments.only or any(case.name.startswith(name) for name in arguments.only):
            tiles = (None,) if arguments.chosen else case.tiles
            yield from ((case, rows, tile) for rows in arguments.rows for tile in tiles)


def main() -> int:
    """Compile, measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="shapes whose names begin so")
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--chosen", action="store_true", help="only the tile of the table")
    parser.add_argument("--jobs", type=int, default=16, help="processes that compile first; 0: none")
    parser.add_argument("--compile-only", action="store_true", help="fill Triton's cache and stop")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long; what is there is kept")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    began = time.monotonic()
    cells = list(chosen_cells(arguments))
    if arguments.jobs:
        compile_all(cells, arguments.jobs)
        print(f"compiled {len(cells)} in {time.monotonic() - began:.0f} s", flush=True)
    if arguments.compile_only:
        return 0
    before, measured = conditions(), []
    for case, rows, tile in cells:
        if time.monotonic() - began > arguments.seconds:
            break
        us, nbytes = run(case, rows, tile, compile_only=False)
        measured.append({
            "name": case.name, "type": case.type, "n": case.n, "k": case.k, "rows": rows,
            "tile": None if tile is None else asdict(tile), "us": round(us, 2), "gb_per_s": round(nbytes / us / 1000),
        })  # fmt: skip
        if tile == (None if arguments.chosen else case.tiles[0]):
            print(f"\n{case.name} T{rows} {nbytes / 1e6:.1f} MB:", end="")
        print(f" {spelled(tile)} {us:.2f}", end="", flush=True)
    facts = {"command": "python bench/gpu_matvec.py " + " ".join(sys.argv[1:]), "before": before, "after": conditions(),
             "rotated_bytes": ROTATED, "seconds": round(time.monotonic() - began), "cells": measured}  # fmt: skip
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
    print(f"\n{len(measured)} of {len(cells)} measured in {facts['seconds']} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
