"""How fast weights come to the device: reading alone, the link alone, repacking alone, and all together.

python bench/gpu_upload.py MODEL.gguf [--json FILE]
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from strata.gguf import open_model
from strata.model import load_config, load_weights
from strata.ops.gpu import feed
from strata.ops.gpu.feed import Feed
from strata.ops.gpu.upload import Upload
from strata.ops.planes import layout, pack_each

GB = 1e9


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda")
    torch.zeros(1, device=device)
    figures: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        figures[name] = round(value, 3)
        print(f"{name}: {value:.3f}", flush=True)

    began = time.monotonic()
    directory = open_model(Path(given.model))
    weights = load_weights(directory, replace(load_config(directory.metadata), mtp=False))
    note("open_s", time.monotonic() - began)
    experts = [m for layer in weights.layers for m in (layer.moe.gate, layer.moe.up, layer.moe.down)]
    # Other layers for each arm: pages that were touched once are faster the second time.
    for arm, (threads, share) in enumerate(((4, 4), (8, 4), (16, 4), (16, 1), (8, 4), (16, 4))):
        feed.SHARE = share << 20
        some = experts[6 * arm : 6 * arm + 6]
        size = sum(m.raw.nbytes for m in some)
        with Feed(device, threads=threads) as one:
            began = time.monotonic()
            for m in some:
                for _, piece in one.pieces(m.raw):
                    del piece
        note(f"feed_{threads}_threads_{share}_MB_{arm}_gbps", size / GB / (time.monotonic() - began))
    feed.SHARE = 4 << 20
    target = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
    began = time.monotonic()
    for _ in range(32):
        target.to(device, non_blocking=True)
    torch.cuda.synchronize()
    note("link_gbps", 32 * target.numel() / GB / (time.monotonic() - began))
    for m in (weights.layers[1].moe.gate, weights.layers[1].moe.down):
        raw = torch.from_numpy(np.array(m.raw)).to(device)
        out = torch.empty((len(raw), layout(m.type.name).nbytes(*m.shape[1:])), dtype=torch.uint8, device=device)
        for turn in range(3):
            torch.cuda.synchronize()
            began = time.monotonic()
            pack_each(m.type.name, raw, m.shape[-1], out)
            submitted = time.monotonic() - began
            torch.cuda.synchronize()
            if turn == 2:
                note(f"pack_{m.type.name}_gbps", raw.numel() / GB / (time.monotonic() - began))
                note(f"pack_{m.type.name}_submit_gbps", raw.numel() / GB / submitted)
        del raw, out
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    sent = [0]

    def count(n: int) -> None:
        sent[0] += n

    began = time.monotonic()
    moved = Upload(device, count).all(weights)
    note("upload_s", time.monotonic() - began)
    note("upload_gb", sent[0] / GB)
    note("upload_gbps", sent[0] / GB / figures["upload_s"])
    note("weights_gb", torch.cuda.memory_allocated() / GB)
    note("scratch_gb", (torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()) / GB)
    note("reserved_gb", torch.cuda.memory_reserved() / GB)
    del moved
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    torch.inference_mode()(main)()
