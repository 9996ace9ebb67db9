"""Reading from the disk while a model runs: rows of the n-gram table, experts beyond memory, and memory being filled.

python bench/storage.py [--folder DIR] [--gigabytes N] [--layers N] [--experts N] [--json FILE]

The folder should lie on the disk that is to be measured. What is written there is removed at the end. The system's file
cache is emptied of these files before every arm. Experts are routed as random weights route them, about evenly: no
cache can do better than the share of experts that it holds.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from strata.cli.table import table
from strata.gguf import TensorDirectory, open_model
from strata.lab.synthetic.__main__ import main as write_synthetic
from strata.loading.sizes import sizes_of
from strata.loading.storage import arranged
from strata.memory.arena import Region, fill
from strata.memory.budget import Machine, Wishes, plan
from strata.memory.ngram import Table, rows_in
from strata.memory.reads import Item, Readers, ReadFile
from strata.memory.tier import TierStats
from strata.model import Network, load_config, load_weights
from strata.ops import bind, workers

ROW, TOKEN = 90, 16  # bytes of a row of the released table, and rows of a token
LAYER = 0.001  # seconds of other work between asking and needing, as a layer of a CPU's window takes


def forget(path: Path) -> None:
    """Empty the system's cache of a file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def filling(path: Path, figures: dict[str, Any]) -> None:
    """Memory filled from the file, by so many threads."""
    rows = []
    for threads in (1, 2, 4, 8, 16):
        for direct in (True, False):
            forget(path)
            source, readers = ReadFile(path, direct=direct), Readers(threads)
            region = Region(source.size)
            done = fill(region, _pieces(source, region), readers, total=source.size)
            figures[f"fill_{threads}_{'direct' if direct else 'cached'}_gbs"] = done.rate / 1e9
            rows.append([str(threads), "direct" if source.direct else "through the cache", f"{done.rate / 1e9:.2f}"])
            region.give_back()
            readers.close()
    print(table(["threads", "way", "GB/s"], rows))


def _pieces(source: ReadFile, region: Region) -> list[Item]:
    step = 16 << 20
    return [
        Item(source, at, min(step, source.size - at), region.address + at, room=True)
        for at in range(0, source.size, step)
    ]


def rows(path: Path, tokens: int, figures: dict[str, Any]) -> None:
    """Rows of tokens one after the other: how long they are on their way, and how long they are waited for."""
    import mmap

    shown = []
    with path.open("rb") as opened:
        mapping = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
    mapped = np.frombuffer(mapping, np.uint8)
    for mode in ("mmap", "direct"):
        for threads in (4, 8, 16):
            if mode == "mmap" and threads != 8:
                continue
            forget(path)
            source, readers = ReadFile(path), Readers(threads)
            where = Table(source, 32, (source.size - 32) // ROW, ROW, (mapped, mapping))
            found = rows_in(mode, where, readers, cached=1 << 16)
            rng, times, waits = np.random.default_rng(threads), [], []
            for _ in range(tokens):
                asked = found.ask(rng.integers(0, where.rows, TOKEN))
                time.sleep(LAYER)  # as a layer's compiled code, this leaves the interpreter to others
                began = time.perf_counter()
                found.take(asked)
                waits.append(time.perf_counter() - began)
                if asked.ticket is not None:
                    times.append(asked.ticket.ended - asked.ticket.began)
            readers.close()
            name = f"rows_{mode}_{threads}"
            late = float(np.mean(np.array(waits) > 50e-6))
            figures[name] = {"waits_us": _quantiles(waits), "reads_us": _quantiles(times), "late": late}
            shown.append([mode, str(threads), *_shown(times), *_shown(waits), f"{late:.1%}"])
    print(table(["way", "threads", "under way us 50%", "99%", "waited us 50%", "99%", "waited at all"], shown))


def _quantiles(seconds: list[float]) -> list[float]:
    return [round(float(q) * 1e6, 1) for q in np.quantile(seconds, (0.5, 0.9, 0.99, 1.0))] if seconds else []


def _shown(seconds: list[float]) -> list[str]:
    found = _quantiles(seconds)
    return [f"{found[0]:.0f}", f"{found[2]:.0f}"] if found else ["", ""]


def experts(path: Path, tokens: int, threads: int, figures: dict[str, Any]) -> None:
    """Windows of one row, and a prompt, with so much of the experts in memory."""
    directory = open_model(path)
    config = replace(load_config(directory.metadata), context=2048, mtp=False)
    sizes = sizes_of(directory, config, gpu=False)
    workers.use((None,) * threads)
    shown = []
    for share in (1.0, 0.75, 0.5, 0.25):
        forget(path)
        held = None if share == 1 else int(share * sizes.expert_bytes)
        made = plan(Machine(0), sizes, Wishes(context=config.context, experts=held))
        began = time.perf_counter()
        ready, storage = arranged(load_weights(directory, config), directory, config, made, None)
        net = Network(config, ready, bind("cpu", config))
        if storage.tier is None:
            touch(directory)
        loading = time.perf_counter() - began
        with torch.inference_mode():
            state = net.new_state()
            net.window([(state, [5])])  # compiles
            began = time.perf_counter()
            net.read(state, [i % config.V for i in range(5, 69)])
            prompt = 64 / (time.perf_counter() - began)
            before = replace(storage.tier.stats) if storage.tier else TierStats()
            began = time.perf_counter()
            for token in range(tokens):
                done = net.window([(state, [7 + token])])[0]
                net.commit(state, done, 1)
            seconds = time.perf_counter() - began
        after = storage.tier.stats if storage.tier else TierStats()
        hits, misses = after.hits - before.hits, after.misses - before.misses
        rate = hits / (hits + misses) if hits + misses else 1.0
        figures[f"experts_{share}"] = {
            "loading_s": loading, "tokens_s": tokens / seconds, "prompt_64_tokens_s": prompt, "hit_rate": rate,
            "read_mb_a_token": (after.read - before.read) / tokens / 1e6,
            "waited_share": (after.waited - before.waited) / seconds,
        }  # fmt: skip
        met = figures[f"experts_{share}"]
        shown.append([f"{share:.0%}", f"{rate:.1%}", *(f"{met[name]:.2f}" for name in (
            "read_mb_a_token", "waited_share", "tokens_s", "prompt_64_tokens_s", "loading_s"))])  # fmt: skip
        storage.close()
    head = ["in memory", "found", "MB read a token", "share waited", "tokens/s", "prompt of 64, tokens/s", "loading s"]
    print(table(head, shown))


def touch(directory: TensorDirectory) -> None:
    """Everything into the system's cache."""
    for name in directory.tensors:
        directory.raw(name).reshape(-1)[::4096].max(initial=0)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=4.0)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--experts", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=given.folder))
    figures: dict[str, Any] = {"conditions": {"processors": os.cpu_count(), "load": [round(os.getloadavg()[0], 1)]}}
    try:
        path = folder / "random.bin"
        with path.open("wb") as out:
            for i in range(max(1, int(given.gigabytes * 1e9) >> 24)):
                out.write(np.random.default_rng(i).bytes(1 << 24))
        filling(path, figures)
        rows(path, given.tokens, figures)
        path.unlink()
        model = folder / "model.gguf"
        used = min(10, given.experts // 2)
        sizes = {"layers": given.layers, "experts": given.experts, "used": used, "vocabulary": 2000}
        write_synthetic(
            [str(model), "--ngram-rows", "2000", *(x for k, v in sizes.items() for x in (f"--{k}", str(v)))]
        )
        experts(model, given.tokens // 10, given.threads, figures)
        figures["conditions"]["load"].append(round(os.getloadavg()[0], 1))
    finally:
        shutil.rmtree(folder)
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
