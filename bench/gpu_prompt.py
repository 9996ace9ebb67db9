"""Prompts on the GPU: time to the first token for prompts of several lengths, memory beside weights, time by kernel.

python bench/gpu_prompt.py MODEL.gguf [--lengths 17 512 4096] [--rounds N] [--json FILE]
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


def first_token(net: Network, ids: list[int]) -> tuple[float, float, int]:
    """Seconds until the host has been told all work, until it has the first token, and the token."""
    state = net.new_state()
    torch.cuda.synchronize()
    began = time.perf_counter()
    residual = net.read(state, ids)
    logits = net.logits(residual[-1:])
    submitted = time.perf_counter()
    token = int(logits[0].argmax())
    return submitted - began, time.perf_counter() - began, token


def by_kernel(net: Network, ids: list[int], shown: int) -> dict[str, tuple[float, int]]:
    """Microseconds and launches of each kernel in one reading."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as prof:
        first_token(net, ids)
        torch.cuda.synchronize()
    table = {e.key: (round(e.device_time_total, 1), e.count) for e in prof.key_averages() if e.device_time_total}
    print(f"  {sum(n for _, n in table.values())} launches, {sum(us for us, _ in table.values()) / 1e3:.2f} ms in them")
    for key, (us, count) in sorted(table.items(), key=lambda kv: -kv[1][0])[:shown]:
        print(f"  {us / 1e3:9.2f} ms {count:6} x {us / count:8.1f} us  {key[:60]}")
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--lengths", type=int, nargs="+", default=[17, 512, 4096])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shown", type=int, default=30, help="kernels shown")
    parser.add_argument("--json")
    given = parser.parse_args()
    device = torch.device("cuda")
    directory = open_model(Path(given.model))
    config = replace(load_config(directory.metadata), mtp=False)
    config = replace(config, context=min(config.context, max(given.lengths) + 64))
    weights = Upload(device).all(load_weights(directory, config))
    pool = Pool(config, device, slots=2, cells=config.context)
    net = Network(config, weights, GpuOps(config, pool, device))
    torch.cuda.synchronize()
    held = torch.cuda.memory_allocated()
    print(f"weights and cache {held / 1e9:.2f} GB", flush=True)
    figures: dict[str, object] = {"weights_gb": held / 1e9}
    random = torch.Generator().manual_seed(1)
    for length in given.lengths:
        ids = torch.randint(5, config.V - 5, (length,), generator=random).tolist()
        for _ in range(2):  # compile, and capture what is captured
            first_token(net, ids)
        torch.cuda.reset_peak_memory_stats()
        rounds = [first_token(net, ids) for _ in range(given.rounds)]
        peak = torch.cuda.max_memory_allocated() - held
        seconds = statistics.median(r[1] for r in rounds)
        submit = statistics.median(r[0] for r in rounds)
        print(
            f"{length} tokens: first token {1e3 * seconds:.2f} ms, {length / seconds:.0f} t/s, "
            f"submitted after {1e3 * submit:.2f} ms, {peak / 1e9:.2f} GB beside; token {rounds[0][2]}",
            flush=True,
        )
        figures[str(length)] = {
            "ms": [round(1e3 * r[1], 3) for r in rounds], "tps": round(length / seconds, 1),
            "submit_ms": round(1e3 * submit, 3), "peak_gb": round(peak / 1e9, 3),
            "same_token": len({r[2] for r in rounds}) == 1, "kernels": by_kernel(net, ids, given.shown),
        }  # fmt: skip
    if given.json:
        Path(given.json).write_text(json.dumps(figures, indent=1))


if __name__ == "__main__":
    torch.inference_mode()(main)()
