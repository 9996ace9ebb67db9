"""Memory of this process and of the device while all else goes on, and whether it grew."""

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch

MB = 1 << 20

BOUNDS: dict[str, int] = {
    "rss": 32 * MB, "device": 32 * MB, "allocated": 32 * MB, "reserved": 32 * MB, "pinned": 8 * MB, "files": 2,
    "threads": 1,
}  # fmt: skip
"""What the last third may have beyond the first: bytes, and numbers."""

FEWEST = 3
"""Samples of one size in a third, with which it counts."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What was taken at one moment.

    Attributes:
        when: seconds since the beginning.
        level: share of experts that slots were asked for.
        of: by name, bytes and numbers.
    """

    when: float
    level: float
    of: dict[str, int]


def look(device: torch.device) -> dict[str, int]:
    """Memory now: resident bytes, open files, threads; of a GPU what torch has, and what is taken by whomever."""
    found = {
        "rss": int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE"),
        "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208  # names only
        "threads": len(os.listdir("/proc/self/task")),  # noqa: PTH208
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        pinned = torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)
        torchs = {"allocated": torch.cuda.memory_allocated(), "reserved": torch.cuda.memory_reserved()}
        found |= {"device": total - free, "pinned": pinned, **torchs}
    return found


@dataclass
class Watch:
    """Samples of a run, at most one in `every` seconds.

    Attributes:
        device: whose memory counts, too.
        every: seconds.
        samples: all.
    """

    device: torch.device
    every: float = 1.0
    samples: list[Sample] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def once(self, level: float) -> None:
        """A sample, if it is time; nothing runs on the device."""
        now = time.monotonic() - self._began
        if not self.samples or now >= self.samples[-1].when + self.every:
            self.samples.append(Sample(now, level, look(self.device)))

    def thirds(self, name: str) -> tuple[float, float] | None:
        """Medians of the first and the last third at the same sizes: those of the size that grew most.

        What is there for the first time in the first tenth is none of it. None if no size was there often enough.
        """
        if not self.samples:
            return None
        end = self.samples[-1].when
        pairs = []
        for level in {one.level for one in self.samples}:
            mine = [(one.when / end if end else 0.0, one.of[name]) for one in self.samples if one.level == level]
            first, last = [v for at, v in mine if 0.1 <= at < 0.4], [v for at, v in mine if at >= 0.7]
            if min(len(first), len(last)) >= FEWEST:
                pairs.append((statistics.median(first), statistics.median(last)))
        return max(pairs, key=lambda pair: pair[1] - pair[0], default=None)

    def grown(self) -> dict[str, tuple[float, float, bool] | None]:
        """By name: both medians, and whether the bound holds."""
        found: dict[str, tuple[float, float, bool] | None] = {}
        for name in self.samples[0].of if self.samples else ():
            pair = self.thirds(name)
            found[name] = None if pair is None else (*pair, pair[1] - pair[0] <= BOUNDS[name])
        return found
