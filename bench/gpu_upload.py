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
from strata.model.weights import Weights
from strata.ops.gpu.feed import Feed
from strata.ops.gpu.upload import Upload
from strata.ops.planes import layout, pack_each

GB = 1e9


class Figures(dict[str, float]):
    """What was measured, shown at once."""

    def note(self, name: str, value: float) -> None:
        """One of them."""
        self[name] = round(value, 3)
        print(f"{name}: {value:.3f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda")
    torch.zeros(1, device=device)
    figures = Figures()
    began = time.monotonic()
    directory = open_model(Path(given.model))
    weights = load_weights(directory, replace(load_config(directory.metadata), mtp=False))
    figures.note("open_s", time.monotonic() - began)
    reading(weights, device, figures)
    repacking(weights, device, figures)
    everything(weights, device, figures)
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))


def reading(weights: Weights, device: torch.device, figures: Figures) -> None:
    """Reading with so many threads, to the device and no further; and the link alone."""
    experts = [m for layer in weights.layers for m in (layer.moe.gate, layer.moe.up, layer.moe.down)]
    # Other layers for each arm: pages that were touched once are faster the second time.
    for arm, threads in enumerate((4, 8, 16, 4, 8, 16)):
        some = experts[6 * arm : 6 * arm + 6]
        size = sum(m.raw.nbytes for m in some)
        with Feed(device, threads=threads) as one:
            began = time.monotonic()
            for m in some:
                for _, piece in one.pieces(m.raw):
                    del piece
        figures.note(f"feed_{threads}_threads_{arm}_gbps", size / GB / (time.monotonic() - began))
    target = torch.empty(64 << 20, dtype=torch.uint8, pin_memory=True)
    torch.cuda.synchronize()
    began = time.monotonic()
    for _ in range(32):
        target.to(device, non_blocking=True)
    torch.cuda.synchronize()
    figures.note("link_gbps", 32 * target.numel() / GB / (time.monotonic() - began))


def repacking(weights: Weights, device: torch.device, figures: Figures) -> None:
    """Repacking what is on the device already."""
    for m in (weights.layers[1].moe.gate, weights.layers[1].moe.down):
        raw = torch.from_numpy(np.array(m.raw)).to(device)
        out = torch.empty((len(raw), layout(m.type.name).nbytes(*m.shape[1:])), dtype=torch.uint8, device=device)
        for turn in range(3):
            torch.cuda.synchronize()
            began = time.monotonic()
            pack_each(m.type.name, raw, m.shape[-1], out, chunk=64 << 20)
            torch.cuda.synchronize()
            if turn == 2:
                figures.note(f"pack_{m.type.name}_gbps", raw.numel() / GB / (time.monotonic() - began))
    torch.cuda.empty_cache()


def everything(weights: Weights, device: torch.device, figures: Figures) -> None:
    """The upload as it is."""
    torch.cuda.reset_peak_memory_stats()
    sent: list[int] = []
    began = time.monotonic()
    moved = Upload(device, sent.append).all(weights)
    figures.note("upload_s", time.monotonic() - began)
    figures.note("upload_gb", sum(sent) / GB)
    figures.note("upload_gbps", sum(sent) / GB / figures["upload_s"])
    figures.note("weights_gb", torch.cuda.memory_allocated() / GB)
    figures.note("scratch_gb", (torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()) / GB)
    figures.note("reserved_gb", torch.cuda.memory_reserved() / GB)
    del moved


if __name__ == "__main__":
    torch.inference_mode()(main)()
