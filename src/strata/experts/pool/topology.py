"""Which processors to compute on: a description of the machine, and a choice that depends on nothing else."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PERFORMANCE = 0.8
"""Share of the strongest core's capacity from which a core counts as a performance core: cores that differ only in
their highest clock stay together, efficiency cores (about half) fall out."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical processor.

    Attributes:
        number: as the system counts.
        core: the first processor of its physical core.
        node: memory node; the socket where the system names no nodes.
        capacity: strength compared with others of this machine.
    """

    number: int
    core: int
    node: int
    capacity: int


@dataclass(frozen=True, slots=True)
class Machine:
    """What this process may use.

    Attributes:
        cpus: processors it may run on.
        quota: processors' worth of time its container or service grants; None without a limit.
    """

    cpus: tuple[Cpu, ...]
    quota: float | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """Processors for threads, the caller's first; None stands for a thread that is not pinned.

    Attributes:
        cpus: one entry per thread.
        why: in words.
    """

    cpus: tuple[int | None, ...]
    why: str


def choose(machine: Machine, threads: int | None = None) -> Choice:
    """Choose processors.

    Without a number of threads: one per physical performance core of one memory node, no more than the quota allows. A
    number is taken as it is; then the best processors come first: performance cores of the fullest node, those of
    other nodes, efficiency cores, second threads of cores; more threads than processors are not pinned.
    """
    if not machine.cpus:
        return Choice((None,) * (threads or 1), "the system does not say which processors there are")
    strongest = max(cpu.capacity for cpu in machine.cpus)
    strong = {cpu.number for cpu in machine.cpus if cpu.capacity >= PERFORMANCE * strongest}
    first_of_core: dict[int, Cpu] = {}
    for cpu in sorted(machine.cpus, key=lambda cpu: cpu.number):
        first_of_core.setdefault(cpu.core, cpu)
    cores = list(first_of_core.values())
    count = {node: sum(c.node == node and c.number in strong for c in cores) for node in {c.node for c in cores}}
    fullest = max(count, key=lambda node: (count[node], -node))

    def rank(cpu: Cpu) -> tuple[bool, bool, bool, int, int]:
        second = first_of_core[cpu.core] is not cpu
        return second, cpu.number not in strong, cpu.node != fullest, cpu.node, cpu.number

    ordered = [cpu.number for cpu in sorted(machine.cpus, key=rank)]
    if threads is not None:
        pinned = ordered[:threads]
        return Choice((*pinned, *[None] * (threads - len(pinned))), f"{threads} threads were asked for")
    best = count[fullest]
    reasons = [f"{best} performance cores" if len(strong) < len(machine.cpus) else f"{best} cores"]
    if len(count) > 1:
        reasons.append(f"of memory node {fullest}, one of {len(count)}")
    if machine.quota is not None and machine.quota < best:
        best = max(1, int(machine.quota))
        reasons.append(f"but time for {machine.quota:g}")
    return Choice(tuple(ordered[:best]), " ".join(reasons))


def read(root: Path = Path("/"), allowed: Iterable[int] | None = None) -> Machine:
    """Describe this machine, or one whose /sys and /proc are written out below another folder.

    Args:
        root: where ``sys`` and ``proc`` lie.
        allowed: processors this process may run on; None asks the system.
    """
    if allowed is None:
        affinity = hasattr(os, "sched_getaffinity")
        allowed = os.sched_getaffinity(0) if affinity else range(os.cpu_count() or 1)
    numbers = sorted(allowed)
    system = root / "sys/devices/system"
    nodes = {
        number: int(folder.name.removeprefix("node"))
        for folder in sorted(system.glob("node/node[0-9]*"))
        for number in listed(_text(folder / "cpulist"))
    }
    weak = set(listed(_text(root / "sys/devices/cpu_atom/cpus")))
    return Machine(tuple(_cpu(system, number, nodes, weak) for number in numbers), _quota(root))


def listed(text: str) -> list[int]:
    """Numbers of a kernel list such as ``0-3,8``."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def _cpu(system: Path, number: int, nodes: dict[int, int], weak: set[int]) -> Cpu:
    folder = system / f"cpu/cpu{number}"
    topology = folder / "topology"
    siblings = listed(_text(topology / "thread_siblings_list") or _text(topology / "core_cpus_list"))
    node = nodes.get(number)
    if node is None:
        node = max(0, int(_text(topology / "physical_package_id") or 0))
    capacity = int(_text(folder / "cpu_capacity") or _text(folder / "cpufreq/cpuinfo_max_freq") or 1024)
    # Intel's efficiency cores are named as such; their clock alone would not always tell.
    return Cpu(number, min(siblings, default=number), node, capacity // 2 if number in weak else capacity)


def _quota(root: Path) -> float | None:
    """The smallest limit of this process's control groups and of all groups these lie in."""
    found = []
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / controllers
        here = top / path.lstrip("/")
        # Inside a container the path may be the host's; its own group is then the mount itself, which ends the chain.
        while True:
            found += _limit(here)
            if here in {top, here.parent}:
                break
            here = here.parent
    return min(found, default=None)


def _limit(folder: Path) -> list[float]:
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = _text(folder / "cpu.cfs_quota_us"), _text(folder / "cpu.cfs_period_us")
    if not quota or not period or quota == "max" or int(quota) <= 0:
        return []
    return [int(quota) / int(period)]


def _text(path: Path) -> str:
    """A file's text; nothing where it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
