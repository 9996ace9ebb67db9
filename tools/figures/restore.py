"""The first token of a conversation that is brought back from RAM and from a disk, as the server does it."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from figures.disk import forget, rate
from figures.session import Session, synchronise
from figures.summary import median
from figures.windows import GREEDY, NO_DRAFTS, ids
from strata.engine import Request, Token
from strata.errors import StrataError
from strata.loading.cache import cached_as
from strata.model import Network
from strata.ops import bind
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import KINDS, Pool
from strata.session.fingerprint import fingerprint
from strata.session.folder import Folder
from strata.session.options import Options
from strata.session.scheduler import Scheduler

KINDS_OF_CACHE = {"": None, "_q8": "q8"}
"""What is added to the names of times, and the type of keys and values; None is the device's own."""


@dataclass(frozen=True)
class Arm:
    """A conversation that is kept in memory and in a folder.

    Attributes:
        network: whose.
        memory: keeps it.
        folder: of its files.
        prompt: its tokens.
        read_s: seconds that reading it took.
    """

    network: Network
    memory: Scheduler
    folder: Path
    prompt: tuple[int, ...]
    read_s: float

    def disk(self) -> Scheduler:
        """A scheduler that has just begun, and finds the files."""
        for path in self.folder.iterdir():
            forget(path)
        return Scheduler(self.network, _options(self.network, self.folder, len(self.prompt)))

    def told(self) -> dict[str, Any]:
        """Bytes that come back, and of the files that hold them."""
        store = self.memory._store  # noqa: SLF001
        place = store._tree.find("", (*self.prompt, 0), len(self.prompt))  # noqa: SLF001
        if place is None:
            raise StrataError("the prompt that was read is not kept")
        parts = [*(node.rows for node in place.path()), place.checkpoint]
        files = [part.file for part in parts if part is not None and part.file is not None]
        size = sum(file.bytes for file in files)
        return {
            "read_s": self.read_s,
            "keys_and_values": self.network.config.qsa.kv,
            "bytes": sum(part.bytes for part in parts if part is not None),
            "files": len(files),
            "file_bytes": size,
            "files_gb": round(size / 1e9, 3),
        }


def restore(session: Session) -> dict[str, Any]:
    """Read a long prompt once, keep it, and go on from it again and again with one new token.

    Timed is from the request to its first token: the rows and states to the device, and a pass over the one token. What
    is kept of it is kept behind that. In every round from RAM, then from files that the system's cache was emptied of,
    by a scheduler that has just begun; each with keys and values in the device's own type and in eight bits.
    """
    network = session.arms("resident")["resident"].network
    device, sizes, c = session.device, session.sizes, network.config
    prompt = tuple(ids(5, sizes.depth, c.V))
    folder = Path(tempfile.mkdtemp(prefix="strata-restore-", dir=session.disk))
    found: dict[str, Any] = {
        "facts": session.model.facts(), "tokens": sizes.depth,
        "rounds": {f"{where}{kind}_ms": [] for kind in KINDS_OF_CACHE for where in ("ram", "disk")}
        | {"ram_parts_ms": [], "disk_parts_ms": []},
    }  # fmt: skip
    arms: dict[str, Arm] = {}
    try:
        for kind, kv in KINDS_OF_CACHE.items():
            arm = arms[kind] = _arm(
                in_type(network, kv, device, sizes.context), prompt, folder / f"files{kind}", device
            )
            told = arm.told()
            session.say(f"{sizes.depth} tokens in {told['keys_and_values']}: {told}")
            if kind:
                found[kind.removeprefix("_")] = told
            else:
                found |= told
                largest = max(arm.folder.glob("*.strata"), key=lambda path: path.stat().st_size)
                found["disk_gbs"] = round(rate(largest), 3)
                session.say(f"the disk gives {found['disk_gbs']} GB/s")
        for turn in session.rounds():
            _round(session, arms, turn, found)
            if turn >= 0:
                session.keep(found)
    finally:
        for arm in arms.values():
            arm.memory.close()
        shutil.rmtree(folder, ignore_errors=True)
    return found


def in_type(network: Network, kv: str | None, device: torch.device, context: int) -> Network:
    """The network with keys and values of another type, in memory of their own, and the same weights."""
    if kv is None:
        return network
    config = cached_as(network.config, kv)
    if not isinstance(network.ops, GpuOps):
        return replace(network, config=config, ops=bind("cpu", config))
    pool = Pool(config, device, slots=2, cells=min(config.context, context), kv=KINDS[kv])
    return replace(network, config=config, ops=GpuOps(config, pool, device, graphs=network.ops.graphs))


def _arm(network: Network, prompt: tuple[int, ...], folder: Path, device: torch.device) -> Arm:
    """Read a prompt, keep it, and write what is kept to files; it stays in memory."""
    memory = Scheduler(network, _options(network, None, len(prompt)))
    began = time.perf_counter()
    first(memory, prompt, "read", device)
    took = round(time.perf_counter() - began, 3)
    store = memory._store  # noqa: SLF001
    store._folder = Folder(folder, fingerprint(network), reserve=0)  # noqa: SLF001
    store.close()
    store._folder = None  # noqa: SLF001  # nothing is written beside the rounds
    return Arm(network, memory, folder, prompt, took)


def _round(session: Session, arms: dict[str, Arm], turn: int, found: dict[str, Any]) -> None:
    device, took = session.device, dict[str, Any]()
    for kind, arm in arms.items():
        prompt, new = arm.prompt, ids(900 + turn, 1, arm.network.config.V)
        took[f"ram{kind}_ms"] = first(arm.memory, (*prompt, *new), f"ram {turn}", device, len(prompt))
        disk = arm.disk()
        took[f"disk{kind}_ms"] = first(disk, (*prompt, *new), f"disk {turn}", device, len(prompt))
        disk.close()
        if kind:
            continue
        took["ram_parts_ms"] = pieces(arm.memory, arm.network, prompt, new, device)
        began = time.perf_counter()
        disk = arm.disk()
        start = 1e3 * (time.perf_counter() - began)
        took["disk_parts_ms"] = pieces(disk, arm.network, prompt, new, device) | {"start": round(start, 1)}
        disk.close()
    session.say(f"round {turn + 1}: {took}")
    if turn >= 0:
        for name, value in took.items():
            found["rounds"][name].append(round(value, 2) if isinstance(value, float) else value)
        times = [name for name in found["rounds"] if not name.endswith("parts_ms")]
        found["medians"] = {name: median(found["rounds"][name]) for name in times}


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
