"""Which machine measurements are of."""

import os
from dataclasses import dataclass
from pathlib import Path

from strata.loading import ram
from strata.loading.cards import gpus
from strata.loading.processor import processor
from strata.loading.shown import shown_bytes

SAME_MEMORY = 0.03
"""Share by which installed memory may differ: the system keeps a part for itself, another one after an update."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What numbers depend on.

    Attributes:
        cpu: the processor's name.
        cores: physical cores.
        threads: logical processors that may be used.
        memory: bytes installed.
        gpus: name and driver of every card.
    """

    cpu: str
    cores: int
    threads: int
    memory: int
    gpus: tuple[tuple[str, str], ...] = ()

    def differences(self, other: "Machine") -> tuple[str, ...]:
        """In words, what makes this another machine than `other`; nothing if they are the same."""
        found = []
        if self.cpu != other.cpu:
            found.append(f"the processor {self.cpu}, not {other.cpu}")
        if (self.cores, self.threads) != (other.cores, other.threads):
            mine, others = (f"{m.threads} processors of {m.cores} cores" for m in (self, other))
            found.append(f"{mine} to use, not {others}")
        if abs(self.memory - other.memory) > SAME_MEMORY * max(self.memory, other.memory):
            found.append(f"{shown_bytes(self.memory)} of memory, not {shown_bytes(other.memory)}")
        if self.gpus != other.gpus:
            found.append(f"{_cards(self.gpus)}, not {_cards(other.gpus)}")
        return tuple(found)


def here(cpuinfo: Path = Path("/proc/cpuinfo"), proc: Path = Path("/proc/driver/nvidia")) -> Machine:
    """This machine. Asks no library of a card's."""
    import psutil  # not on machines that only measure kernels, which import this module's neighbours

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)
    return Machine(
        processor(cpuinfo)[0],
        psutil.cpu_count(logical=False) or threads,
        threads,
        ram.measure().total,
        tuple((card.name, card.driver) for card in gpus(proc)),
    )


def _cards(cards: tuple[tuple[str, str], ...]) -> str:
    return " and ".join(f"{name} with driver {driver}" for name, driver in cards) or "no GPU"
