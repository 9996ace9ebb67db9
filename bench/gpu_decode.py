"""Decode on the GPU: tokens a second of plain windows, eager and as captured graphs.

python bench/gpu_decode.py MODEL.gguf [--tokens N] [--json FILE]
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda")
    began = time.monotonic()
    directory = open_model(Path(given.model))
    config = replace(load_config(directory.metadata), mtp=False)
    config = replace(config, context=min(config.context, given.context))
    weights = load_weights(directory, config)
    print(f"opened {time.monotonic() - began:.1f} s", flush=True)
    weights = Upload(device).all(weights)
    torch.cuda.synchronize()
    print(f"uploaded {time.monotonic() - began:.1f} s, {torch.cuda.memory_allocated() / 1e9:.1f} GB", flush=True)
    pool = Pool(config, device, slots=2, cells=given.context)
    ops = GpuOps(config, pool, device)
    net = Network(config, weights, ops)
    figures = {"memory_gb": torch.cuda.memory_allocated() / 1e9}
    for rows in (1, 4, 8):
        state = net.new_state()
        times = []
        for step in range(given.tokens):
            torch.cuda.synchronize()
            start = time.perf_counter()
            done = net.window([(state, [(7 * step + r) % 1000 + 5 for r in range(rows)])])[0]
            submitted = time.perf_counter()
            torch.cuda.synchronize()
            trunk = time.perf_counter()
            logits = net.logits(done.residual)
            token = int(logits[-1].argmax())
            net.commit(state, done, 1)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start, trunk - start, submitted - start))
        steady = times[5:]
        names = ("all", "trunk", "submit")
        medians = {n: 1e3 * statistics.median(t[i] for t in steady) for i, n in enumerate(names)}
        print(rows, "rows: first", [f"{1e3 * t[0]:.1f}" for t in times[:3]], "ms; then", medians, token, flush=True)
        figures[f"rows_{rows}"] = medians
        del state
    batch = ops._windows[(1,)]
    graph = ops._recorded[(1,)][0]
    for name, recorded in (("1", graph),):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(5):
            recorded.replay()
        start.record()
        for _ in range(50):
            recorded.replay()
        end.record()
        torch.cuda.synchronize()
        figures[f"replay_{name}_ms"] = start.elapsed_time(end) / 50
        print("replay", name, figures[f"replay_{name}_ms"], "ms")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
    table = {}
    for event in prof.key_averages():
        table[event.key] = (
            event.device_time_total / 5 if hasattr(event, "device_time_total") else event.cuda_time_total / 5,
            event.count / 5,
        )
    for key, (us, count) in sorted(table.items(), key=lambda kv: -kv[1][0])[:30]:
        print(f"{us:9.1f} us {count:6.1f} x {key[:80]}")
    figures["kernels"] = {k: [round(u, 1), c] for k, (u, c) in table.items()}
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    torch.inference_mode()(main)()
