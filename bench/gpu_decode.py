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


def profiled(graph: torch.cuda.CUDAGraph, figures: dict, name: str, shown: int, trace: str | None) -> None:
    """Time by kernel of a replay, in microseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(20):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    print(f"replay {start.elapsed_time(end) / 20:.3f} ms")
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    table = {e.key: (e.device_time_total / 3, e.count / 3) for e in prof.key_averages()}
    if trace:
        prof.export_chrome_trace(f"{trace}-{name}.json")
    print(f"kernels {sum(c for _, c in table.values()):.0f}, {sum(u for u, _ in table.values()):.0f} us in them")
    for key, (us, count) in sorted(table.items(), key=lambda kv: -kv[1][0])[:shown]:
        print(f"{us:9.1f} us {count:6.1f} x {us / max(count, 1):7.2f} {key[:60]}")
    figures[name + "_kernels"] = {k: [round(u, 1), c] for k, (u, c) in table.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--json")
    parser.add_argument("--trace", help="where the time lines of replays go, as PREFIX-NAME.json for chrome://tracing")
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
    for depth, rows in ((0, 1), (0, 4), (0, 8), (32768, 1)):
        if depth + 200 > given.context:
            continue
        state = net.new_state()
        pool.reserve(state, depth)
        state.length = state.next_position = depth
        times = []
        for step in range(given.tokens):
            torch.cuda.synchronize()
            start = time.perf_counter()
            done = net.window([(state, [(7 * step + r) % 1000 + 5 for r in range(rows)])])[0]
            submitted = time.perf_counter()
            torch.cuda.synchronize()
            trunk = time.perf_counter()
            logits = net.predictions([done])
            token = int(logits[-1].argmax())
            net.commit(state, done, 1)
            torch.cuda.synchronize()
            times.append((time.perf_counter() - start, trunk - start, submitted - start))
        steady = times[5:]
        names = ("all", "trunk", "submit")
        medians = {n: round(1e3 * statistics.median(t[i] for t in steady), 3) for i, n in enumerate(names)}
        print(f"depth {depth} rows {rows}:", medians, token, flush=True)
        figures[f"depth_{depth}_rows_{rows}"] = medians
        profiled(
            ops.recorded[(rows,)][0], figures, f"depth_{depth}_rows_{rows}", 24 if rows in (1, 4) else 0, given.trace
        )
        del state, done
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    torch.inference_mode()(main)()
