"""The first token of a conversation that is brought back from RAM and from a disk, as the server does it."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from figures.disk import forget, rate
from figures.session import Session, synchronise
from figures.summary import median
from figures.windows import GREEDY, NO_DRAFTS, ids
from strata.engine import Request, Token
from strata.errors import StrataError
from strata.model import Network
from strata.session.options import Options
from strata.session.scheduler import Scheduler


def restore(session: Session) -> dict[str, Any]:
    """Read a long prompt once, keep it, and go on from it again and again with one new token.

    Timed is from the request to its first token: the rows and states to the device, and a pass over the one token. What
    is kept of it is kept behind that. In every round from RAM, then from files that the system's cache was
    emptied of, by a scheduler that has just begun.
    """
    network = session.arms("resident")["resident"].network
    device, sizes, c = session.device, session.sizes, network.config
    prompt = tuple(ids(5, sizes.depth, c.V))
    folder = Path(tempfile.mkdtemp(prefix="strata-restore-", dir=session.disk))
    found: dict[str, Any] = {
        "facts": session.model.facts(), "tokens": sizes.depth, "keys_and_values": c.qsa.kv,
        "rounds": {"ram_ms": [], "disk_ms": [], "ram_parts_ms": [], "disk_parts_ms": []},
    }  # fmt: skip
    memory = Scheduler(network, _options(network, None, sizes.depth))
    try:
        began = time.perf_counter()
        first(memory, prompt, "read", device)
        found["read_s"] = round(time.perf_counter() - began, 3)
        found["bytes"] = memory.stats().ram_bytes
        session.say(f"{sizes.depth} tokens read in {found['read_s']} s; {found['bytes'] / 1e9:.3f} GB are kept")
        disk = Scheduler(network, _options(network, folder, sizes.depth))
        first(disk, prompt, "read", device)
        disk.close()
        files = sorted(path for path in folder.iterdir() if path.suffix == ".strata")
        found["files_gb"] = round(sum(path.stat().st_size for path in files) / 1e9, 3)
        found["disk_gbs"] = round(rate(max(files, key=lambda path: path.stat().st_size)), 3)
        session.say(f"{len(files)} files, {found['files_gb']} GB, on a disk that gives {found['disk_gbs']} GB/s")
        for turn in session.rounds():
            _round(session, network, memory, folder, prompt, turn, found)
            if turn >= 0:
                session.keep(found)
    finally:
        memory.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def _round(
    session: Session, network: Network, memory: Scheduler, folder: Path, prompt: Sequence[int], turn: int,
    found: dict[str, Any],
) -> None:  # fmt: skip
    device, new = session.device, ids(900 + turn, 1, network.config.V)
    took: dict[str, Any] = {"ram_ms": first(memory, (*prompt, *new), f"ram {turn}", device, len(prompt))}
    took["ram_parts_ms"] = pieces(memory, network, prompt, new, device)
    for path in folder.iterdir():
        forget(path)
    began = time.perf_counter()
    disk = Scheduler(network, _options(network, folder, len(prompt)))
    start = 1e3 * (time.perf_counter() - began)
    took["disk_ms"] = first(disk, (*prompt, *new), f"disk {turn}", device, len(prompt))
    disk.close()
    for path in folder.iterdir():
        forget(path)
    disk = Scheduler(network, _options(network, folder, len(prompt)))
    took["disk_parts_ms"] = pieces(disk, network, prompt, new, device) | {"start": round(start, 1)}
    disk.close()
    session.say(f"round {turn + 1}: {took}")
    if turn >= 0:
        for name, value in took.items():
            found["rounds"][name].append(round(value, 2) if isinstance(value, float) else value)
        found["medians"] = {name: median(found["rounds"][name]) for name in ("ram_ms", "disk_ms")}


def first(scheduler: Scheduler, prompt: Sequence[int], name: str, device: torch.device, known: int = 0) -> float:
    """Milliseconds from a request to its first token.

    Raises:
        StrataError: less of the prompt was known than should be, or the answer ended with an error.
    """
    before = scheduler.stats().cached_tokens
    request = Request(name, tuple(prompt), sampling=GREEDY, max_tokens=2, drafting=NO_DRAFTS)
    synchronise(device)
    began = time.perf_counter()
    scheduler.submit(request)
    took = 0.0
    while not scheduler.idle:
        events = scheduler.tick()
        if not took and any(isinstance(event, Token) for _, event in events):
            took = 1e3 * (time.perf_counter() - began)
    cached = scheduler.stats().cached_tokens - before
    if cached != known or not took:
        raise StrataError(f"{cached} tokens of {len(prompt)} were known instead of {known}, or no token came ({took})")
    return took


def pieces(
    scheduler: Scheduler, network: Network, prompt: Sequence[int], new: Sequence[int], device: torch.device
) -> dict[str, float]:
    """The same in its pieces, milliseconds: the state back on the device, and a pass over the new token."""
    store = scheduler._store  # noqa: SLF001
    synchronise(device)
    times = [time.perf_counter()]
    back = store.restore("", (*prompt, *new))
    if back is None:
        raise StrataError(f"nothing is known of a prompt of {len(prompt)} tokens that was kept")
    synchronise(device)
    times.append(time.perf_counter())
    state, place = back
    network.logits(network.read(state, list(new))[-1:]).cpu()
    times.append(time.perf_counter())
    store.release(place)
    return {name: round(1e3 * (b - a), 2) for name, a, b in zip(("state", "token"), times, times[1:], strict=False)}


def _options(network: Network, folder: Path | None, depth: int) -> Options:
    """One checkpoint at the prompt's end; room for all of it."""
    return Options(
        slots=1, ram=16 << 30, folder=folder, disk=32 << 30, reserve=0, step=max(1, depth),
        rows=network.pass_rows, same_forms=network.same_forms,
    )  # fmt: skip
