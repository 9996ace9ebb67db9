"""Measure a window of a loaded network."""

import re
from collections import defaultdict
from typing import Any

import torch

from strata.errors import StrataError
from strata.lab.codegen import baseline
from strata.lab.codegen.build import version
from strata.lab.roofline.launches import Launch, launches
from strata.lab.roofline.moved import moved
from strata.lab.roofline.spans import Span, own_time
from strata.lab.roofline.table import Row, rows
from strata.model import Network, State
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.record import Recording

REPLAYS = 5


def roofline(network: Network, state: State, count: int) -> list[Row]:
    """Rows of a window of ``count`` tokens behind a conversation, which stays as it was.

    Raises:
        StrataError: the network is not on a GPU that captures windows.
    """
    ops: Any = network.ops
    if not isinstance(ops, GpuOps) or not torch.cuda.is_available():
        raise StrataError("a roofline is drawn of a model on a GPU; this one is computed on the CPU")
    ids = [7 * i + 5 for i in range(count)]
    with launches() as seen:
        _window(network, state, ids)
    for _ in range(2):
        _window(network, state, ids)
    graph = ops.recorded[count,][0]
    times: dict[str, tuple[float, int]] = {}
    for spans in replayed(graph):
        for name, (time, launched) in own_time(spans).items():
            times[name] = times.get(name, (0.0, 0))[0] + time / REPLAYS, launched
    sums: dict[str, float] = defaultdict(float)
    for launch in seen:
        sums[launch.name] += moved(launch)
    return rows(times, sums, instructions(seen, _arch()), bandwidth())


def _window(network: Network, state: State, ids: list[int]) -> None:
    done = network.window([(state, ids)])[0]
    network.commit(state, done, 0)
    torch.cuda.synchronize()


def replayed(graph: Recording) -> list[list[Span]]:
    """What ran in each of `REPLAYS` replays, one after another."""
    from torch.profiler import ProfilerActivity, profile

    graph.replay()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(REPLAYS):
            graph.replay()
            torch.cuda.synchronize()
    ran = [event for event in seen.events() if str(event.device_type).endswith("CUDA")]
    spans = [Span(short(event.name), event.time_range.start, event.time_range.end) for event in ran]
    spans.sort(key=lambda span: span.start)
    nodes = len(spans) // REPLAYS
    return [spans[i * nodes : (i + 1) * nodes] for i in range(REPLAYS)]


def short(name: str) -> str:
    """A kernel's name without types and arguments."""
    return re.split(r"[<(]", name.removeprefix("void "))[0].rsplit("::", 1)[-1]


def bandwidth() -> float:
    """GB/s of a copy much larger than the cache, bytes read and written."""
    source = torch.empty(2 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    target.copy_(source)
    start.record()
    for _ in range(10):
        target.copy_(source)
    end.record()
    torch.cuda.synchronize()
    return float(10 * 2 * source.nbytes / (start.elapsed_time(end) * 1e-3) / 1e9)


def instructions(seen: list[Launch], arch: int) -> dict[str, float]:
    """Instructions a weight by kernel, of the slowest type met, as recorded for this compiler or the nearest one."""
    try:
        recorded = baseline.read(version())
    except StrataError:
        return {}
    found: dict[str, float] = {}
    for launch in seen:
        kinds = [value for key, value in launch.arguments.items() if key in {"KIND", "GATE"}]
        for (name, architecture), counts in recorded.items():
            wanted = architecture == arch and counts.per_weight and any(kind in name.split(".") for kind in kinds)
            if wanted and launch.name.removesuffix("_kernel") in name:
                found[launch.name] = max(found.get(launch.name, 0.0), counts.per_weight / 1000)
    return found


def _arch() -> Any:
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor
