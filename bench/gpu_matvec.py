"""Quantised products on a GPU: microseconds and GB/s of weights by type, shape, rows and tile.

A cell is a CUDA graph of launches that rotate over at least 300 MB of different weights, so nothing comes from L2
that would not in use; the median of replays, divided by launches. Gaps between kernels of a graph are therefore in
the numbers. Weights are random bytes. GB/s count the planes' bytes once. The share is of a copy measured in the same
run: bytes read and written by an elementwise kernel.

    python bench/gpu_matvec.py                       # table, and bench/results/gpu-matvec.json
    python bench/gpu_matvec.py --types Q8_0 --out x.json
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
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
from strata.ops.planes import LAYOUTS, layout
from strata.ops.variants import Tile

RESULT = Path(__file__).parent / "results" / "gpu-matvec.json"
ROTATED = 300_000_000  # bytes
SHAPES = {(8192, 2560): (1, 4), (2560, 8192): (1, 4), (248320, 2560): (1, 4)}
SHORT = {(2560, 640): (1, 4)}
LONG_TILES = {
    "two": Tile(),
    "four": Tile(tiles=2),
    "two-unrolled": Tile(unroll=4),
    "four-warps": Tile(rows=8, warps=4),
    "wide": Tile(rows=1, step=32),
    "wide-two": Tile(rows=1, step=32, unroll=2),
}
SHORT_TILES = {"eight": Tile(rows=8, step=4), "two": Tile(), "four": Tile(tiles=2)}
GATE_UP_TILES = {"two": Tile(), "four": Tile(tiles=2), "two-warps": Tile(rows=4, warps=2)}
GROUPED = {"gate_up": ("IQ3_XXS", "Q8_0"), "down": ("IQ4_NL", "Q8_0", "Q5_1")}
FLOATS = {(torch.bfloat16, 320, 10240): "BF16", (torch.bfloat16, 10240, 320): "BF16", (torch.float32, 512, 2560): "F32",
          (torch.bfloat16, 8192, 2560): "BF16", (torch.bfloat16, 248320, 2560): "BF16"}  # fmt: skip


def timed(launches: list[Callable[[], object]], replays: int = 15) -> float:
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


def random_bytes(count: int) -> torch.Tensor:
    """Random bytes on the device."""
    return torch.randint(0, 256, (count,), dtype=torch.uint8, device="cuda")


def activations(rows: int, width: int) -> matvec.Activations:
    """Quantised random rows."""
    return matvec.quantise(torch.randn((rows, width), device="cuda"))


def copies(nbytes: int, limit: int = 400) -> int:
    """How many different matrices make up the rotation."""
    return max(1, min(limit, -(-ROTATED // nbytes)))


def dense(name: str, rows: int, shape: tuple[int, int], tile: Tile, pool: torch.Tensor | None) -> dict[str, object]:
    """One product; without a pool of bytes only compiled."""
    n, width = shape
    nbytes = layout(name).nbytes(n, width)
    count = 1 if pool is None else copies(nbytes)
    data = random_bytes(nbytes) if pool is None else pool
    scale = torch.ones(1, device="cuda") if name == "NVFP4" else None
    step = nbytes // 512 * 512 + 512
    matrices = [matvec.PlaneMatrix(name, n, width, data[i * step : i * step + nbytes], scale) for i in range(count)]
    x, out = activations(rows, width), torch.empty((rows, n), device="cuda")
    launches = [lambda w=w: matvec.product(w, x, out, tile) for w in matrices] * max(1, 16 // count)
    if pool is None:
        launches[0]()
        return {}
    return {"us": timed(launches), "bytes": nbytes}


def float_cell(
    dtype: torch.dtype, rows: int, shape: tuple[int, int], tiles: int, *, compile_only: bool
) -> dict[str, object]:
    """One float product."""
    n, width = shape
    nbytes = n * width * dtype.itemsize
    count = 1 if compile_only else copies(nbytes)
    matrices = [torch.randn((n, width), device="cuda").to(dtype) for _ in range(count)]
    x, out = torch.randn((rows, width), device="cuda"), torch.empty((rows, n), device="cuda")
    launches = [lambda w=w: floats.product(w, x, out, tiles) for w in matrices] * max(1, 16 // count)
    if compile_only:
        launches[0]()
        return {}
    return {"us": timed(launches), "bytes": nbytes}


def chosen(rows: int, experts_in_all: int, first: int) -> torch.Tensor:
    """Ten experts a row, numbered from ``first``; of four rows, 30 distinct ones as in text: ten have two rows."""
    order = torch.arange(10)[None] if rows == 1 else torch.randperm(30)
    picked = order if rows == 1 else torch.cat([order, order[::3]]).view(4, 10)
    return ((picked + first) % experts_in_all).to(torch.int32).contiguous().cuda()


def grouped_slots(kinds: tuple[str, str, str], count: int, *, pinned: bool = False) -> Slots:
    """Slots of random bytes, expert e in slot e."""
    found = SlotLayout(*kinds, 2560, 640)
    data = random_bytes(count * found.nbytes).view(count, -1)
    data = data.cpu().pin_memory() if pinned else data
    return Slots(found, data, torch.arange(count, dtype=torch.int32, device="cuda"))


def grouped(
    op: str, name: str, rows: int, tile: Tile | None, *, compile_only: bool, pinned: bool = False
) -> dict[str, object]:
    """Gate and up, or down, of a window's experts."""
    kinds = (name, name, "IQ4_NL") if op == "gate_up" else ("Q2_0", "Q2_0", name)
    one = 2 * layout(name).nbytes(640, 2560) if op == "gate_up" else layout(name).nbytes(2560, 640)
    distinct = 10 if rows == 1 else 30
    sets = 1 if compile_only else (2 if pinned else copies(distinct * one, 40))
    slots = grouped_slots(kinds, sets * distinct, pinned=pinned)
    plans = [experts.plan(chosen(rows, sets * distinct, i * distinct), slots) for i in range(sets)]
    read = [int(plan.totals[0]) * one for plan in plans]
    if op == "gate_up":
        x, out = activations(rows, 2560), torch.empty((rows * 10, 640), device="cuda")
        launches = [lambda p=p: experts.gate_up(slots, x, p, out, tile) for p in plans]
    else:
        x, out = activations(rows * 10, 640), torch.empty((rows * 10, 2560), device="cuda")
        launches = [lambda p=p: experts.down(slots, x, p, out, tile) for p in plans]
    if compile_only:
        launches[0]()
        return {}
    cell = {"us": timed(launches * max(1, 12 // sets)), "bytes": statistics.mean(read)}
    return cell | {"experts": statistics.mean(int(plan.totals[0]) for plan in plans)}


def whole_layers(rows: int) -> dict[str, object]:
    """Quantise, plan, gate and up, quantise, down, combine: all launches of a layer's routed experts."""
    distinct = 10 if rows == 1 else 30
    kinds = ("IQ3_XXS", "IQ3_XXS", "IQ4_NL")
    slots = grouped_slots(kinds, 8 * distinct)
    ids = [chosen(rows, 8 * distinct, i * distinct) for i in range(8)]
    x, weights = torch.randn((rows, 2560), device="cuda"), torch.rand((rows, 10), device="cuda")
    cells = {"layer": timed([lambda i=i: experts.experts(slots, matvec.quantise(x), i, weights) for i in ids])}
    room, plan = matvec.empty_activations(rows, 2560, x.device), experts.empty_plan(rows, 10, slots)
    y, out = torch.randn((rows * 10, 2560), device="cuda"), torch.empty_like(x)
    h, h_room = torch.randn((rows * 10, 640), device="cuda"), matvec.empty_activations(rows * 10, 640, x.device)
    cells["quantise"] = timed([lambda: matvec.quantise(x, room)] * 50)
    cells["quantise h"] = timed([lambda: matvec.quantise(h, h_room)] * 50)
    cells["plan"] = timed([lambda i=i: experts.plan(i, slots, plan) for i in ids] * 6)
    cells["combine"] = timed([lambda: experts.combine(y, weights, out=out)] * 50)
    return cells


def cells(arguments: argparse.Namespace) -> list[dict[str, object]]:
    """Everything there is to measure, without numbers yet."""
    found: list[dict[str, object]] = []
    for op, names in GROUPED.items():
        tiles = GATE_UP_TILES if op == "gate_up" else SHORT_TILES
        found += [
            {"op": op, "type": name, "rows": rows, "tile": tile}
            for name in names if name in arguments.types for rows in (1, 4) for tile in tiles
        ]  # fmt: skip
    if not arguments.no_floats:
        found += [
            {"op": "floats", "type": kind, "n": n, "k": width, "rows": rows, "tile": tiles}
            for (_, n, width), kind in FLOATS.items() for rows in (1, 4) for tiles in (1, 2)
        ]  # fmt: skip
    for name in arguments.types:
        for shapes, tiles in ((SHAPES, LONG_TILES), (SHORT, SHORT_TILES)):
            for (n, width), counts in shapes.items():
                if width % max(plane.weights for plane in LAYOUTS[name].planes):
                    continue
                found += [
                    {"op": "matvec", "type": name, "n": n, "k": width, "rows": rows, "tile": tile}
                    for rows in counts
                    for tile in tiles
                ]
    return found


def run(cell: dict[str, object], pool: torch.Tensor | None) -> dict[str, object]:
    """Measure one cell, or only compile it."""
    tile, rows = cell["tile"], int(cell["rows"])
    if cell["op"] == "matvec":
        tiles = SHORT_TILES if cell["k"] == 640 else LONG_TILES
        return dense(str(cell["type"]), rows, (int(cell["n"]), int(cell["k"])), tiles[tile], pool)
    if cell["op"] == "floats":
        dtype = {"BF16": torch.bfloat16, "F32": torch.float32}[str(cell["type"])]
        return float_cell(dtype, rows, (int(cell["n"]), int(cell["k"])), int(tile), compile_only=pool is None)
    tiles = GATE_UP_TILES if cell["op"] == "gate_up" else SHORT_TILES
    return grouped(str(cell["op"]), str(cell["type"]), rows, tiles[tile], compile_only=pool is None)


def compile_some(some: list[dict[str, object]]) -> int:
    """In a process of its own: fill Triton's cache on disk."""
    for cell in some:
        small = dict(cell)
        if cell["op"] in {"matvec", "floats"}:
            small["n"] = 64
        run(small, None)
    return len(some)


def compile_all(found: list[dict[str, object]], jobs: int) -> None:
    """Compile each distinct kernel once, in parallel."""
    distinct = {}
    for cell in found:
        even = int(cell.get("k", 0)) % 512 == 0
        short = cell.get("k") == 640
        distinct[cell["op"], cell["type"], cell["rows"], cell["tile"], even, short] = cell
    todo = list(distinct.values())
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as workers:
        list(workers.map(compile_some, [todo[i::jobs] for i in range(jobs)]))


def copy_rate() -> float:
    """GB/s of an elementwise kernel that reads and writes a gigabyte: what shares are of."""
    a = torch.randn(1 << 28, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.nbytes / timed([lambda: torch.neg(a, out=b)] * 4) / 1000


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


def main() -> int:
    """Compile, measure, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", nargs="+", default=list(LAYOUTS))
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--no-floats", action="store_true")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="stop measuring after this long; what is there is kept"
    )
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    began = time.monotonic()
    found = cells(arguments)
    compile_all(found, arguments.jobs)
    print(f"compiled in {time.monotonic() - began:.0f} s", flush=True)
    before, copied = conditions(), copy_rate()
    pool = random_bytes(max(ROTATED * 2, 800_000_000))
    layers = {rows: whole_layers(rows) for rows in (1, 4)}
    print(f"copy {copied:.0f} GB/s; layers {layers}", flush=True)
    for cell in found:
        if time.monotonic() - began > arguments.seconds:
            break
        cell.update(run(cell, pool))
        cell["gb_per_s"] = round(float(cell["bytes"]) / float(cell["us"]) / 1000, 1)
        cell["share"] = round(float(cell["gb_per_s"]) / copied, 3)
        cell["us"] = round(float(cell["us"]), 2)
    pinned = {}
    if "IQ3_XXS" in arguments.types and time.monotonic() - began < arguments.seconds:
        pinned = {rows: grouped("gate_up", "IQ3_XXS", rows, None, compile_only=False, pinned=True) for rows in (1, 4)}
    measured = [cell for cell in found if "us" in cell]
    facts = {"command": "python bench/gpu_matvec.py " + " ".join(sys.argv[1:]), "before": before, "after": conditions(),
             "copy_gb_per_s": round(copied, 1), "rotated_bytes": ROTATED, "layers_us": layers, "pinned": pinned,
             "seconds": round(time.monotonic() - began), "cells": measured}  # fmt: skip
    arguments.out.write_text(json.dumps(facts, indent=1) + "\n")
    best: dict[tuple[object, ...], dict[str, object]] = {}
    for cell in measured:
        key = cell["op"], cell["type"], cell.get("n"), cell.get("k"), cell["rows"]
        if key not in best or float(cell["us"]) < float(best[key]["us"]):
            best[key] = cell
    for key, cell in best.items():
        print(*key, cell["tile"], cell["us"], "us", cell["gb_per_s"], "GB/s", cell["share"])
    print("pinned", pinned, "of", len(found), "measured", len(measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
