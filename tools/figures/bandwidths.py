"""What the machine's memories, links and tensor cores give, by the simplest programs there are."""

import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from figures.session import Session

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

ROUNDS = 5


def bandwidths(session: Session) -> dict[str, Any]:
    """GB/s and TFLOPS; medians, with the rounds beside them."""
    found: dict[str, Any] = {"rounds": {}}

    def keep(name: str, rounds: list[float]) -> None:
        found["rounds"][name] = [round(value, 2) for value in rounds]
        found[name] = round(statistics.median(rounds), 2)
        session.say(f"{name}: {found[name]}")
        session.keep(found)

    for name, rounds in _ram(session).items():
        keep(name, rounds)
    if session.device.type == "cuda":
        size = int(session.sizes.gigabytes * 1e9) // 4096 * 4096
        keep("vram_gbs", _timed(size, *_vram_read(size)))
        keep("vram_copy_gbs", _timed(2 * size, *_vram_copy(size)))
        for name, rounds in (_links(size // 4) | _both(size // 4)).items():
            keep(name, rounds)
        keep("matmul_tflops", _matmul())
    return found


def _ram(session: Session) -> dict[str, list[float]]:
    """Reading by so many threads: anonymous memory, and the pages of the model's file where there is one."""
    from experts_pool import plain_read, times

    size = int(session.sizes.gigabytes * 1e9) // 8 * 8
    threads = len(_processors())
    raw = np.ones(size, np.uint8)
    found = {}
    for count in sorted({1, max(1, threads // 2), max(1, threads - 1), threads}):
        name = "ram_gbs" if count == threads else f"ram_{count}_threads_gbs"
        found[name] = [size / seconds / 1e9 for seconds in times(plain_read(raw, count), ROUNDS)]
    if session.model_path.exists():
        mapped = np.memmap(session.model_path, np.uint8, "r")[:size]
        found["ram_file_gbs"] = [len(mapped) / seconds / 1e9 for seconds in times(plain_read(mapped, threads), ROUNDS)]
    return found


def _processors() -> Any:
    from strata.experts.pool import choose, read

    return choose(read(), None).cpus


def _timed(size: int, body: Callable[[], Any]) -> list[float]:
    """GB/s of some bytes, on the device's clock."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    found = []
    for turn in range(-1, ROUNDS):
        begin.record()
        for _ in range(4):
            body()
        end.record()
        torch.cuda.synchronize()
        if turn >= 0:
            found.append(4 * size / begin.elapsed_time(end) / 1e6)
    return found


def _vram_read(size: int) -> tuple[Callable[[], Any]]:
    x = torch.zeros(size // 4, dtype=torch.float32, device="cuda")
    return (x.sum,)


def _vram_copy(size: int) -> tuple[Callable[[], Any]]:
    x = torch.zeros(size, dtype=torch.uint8, device="cuda")
    y = torch.empty_like(x)
    return (lambda: y.copy_(x),)


def _links(size: int) -> dict[str, list[float]]:
    """Copies of locked memory to the device and back; what a kernel reads itself is told with the prompts."""
    here = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    there = torch.zeros(size, dtype=torch.uint8, device="cuda")
    return {
        "link_gbs": _timed(size, lambda: there.copy_(here, non_blocking=True)),
        "link_back_gbs": _timed(size, lambda: here.copy_(there, non_blocking=True)),
    }


def _both(size: int) -> dict[str, list[float]]:
    """RAM read by the threads that tiers have while the link reads other RAM: each side's rate beside the other.

    As many copies are launched at once as outlast two readings of all the memory by the threads; the last reading that
    ends before the copies do counts.
    """
    from experts_pool import plain_read
    from strata.loading import tiers

    here = torch.zeros(size, dtype=torch.uint8, pin_memory=True)
    there = torch.zeros(size, dtype=torch.uint8, device="cuda")
    run = plain_read(np.ones(4 * size, np.uint8), len(tiers.processors(None)))
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    found: dict[str, list[float]] = {"ram_beside_link_gbs": [], "link_beside_ram_gbs": []}
    for _ in range(ROUNDS):
        torch.cuda.synchronize()
        begin.record()
        for _ in range(12):
            there.copy_(here, non_blocking=True)
        end.record()
        rate = 0.0
        while not end.query():
            began = time.perf_counter()
            run()
            if not end.query():
                rate = 4 * size / (time.perf_counter() - began) / 1e9
        end.synchronize()
        found["ram_beside_link_gbs"].append(rate)
        found["link_beside_ram_gbs"].append(12 * size / begin.elapsed_time(end) / 1e6)
    return found


def _matmul(size: int = 8192) -> list[float]:
    x = torch.randn((size, size), dtype=torch.float16, device="cuda")
    operations = 2 * size**3
    return [value * 1e9 / 1e12 for value in _timed(operations, lambda: x @ x)]
