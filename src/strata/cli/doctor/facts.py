"""What this machine has, in numbers."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil

from strata import __version__
from strata.cli.doctor.gpu import Gpu, gpus
from strata.loading import ram

PACKAGES = ("torch", "triton", "numpy", "tokenizers")
CPU_FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "sve")
"""Those that decide how fast quantised weights can be computed with."""


@dataclass(frozen=True, slots=True)
class Facts:
    """The machine.

    Attributes:
        strata: our version.
        python: its version.
        system: operating system and architecture.
        packages: versions by name; None for one that is not installed.
        cpu: the processor's name.
        cores: physical cores.
        threads: logical processors this process may use.
        features: instruction sets of interest that it has.
        memory: main memory.
        disk_free: bytes free in the working directory.
        gpus: cards.
    """

    strata: str
    python: str
    system: str
    packages: dict[str, str | None]
    cpu: str
    cores: int | None
    threads: int
    features: tuple[str, ...]
    memory: ram.Ram
    disk_free: int
    gpus: tuple[Gpu, ...]


def gather() -> Facts:
    """Ask the system. Imports none of the packages it names."""
    name, features = _cpu(Path("/proc/cpuinfo"))
    return Facts(
        strata=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}, {platform.machine()}",
        packages={package: _version(package) for package in PACKAGES},
        cpu=name,
        cores=psutil.cpu_count(logical=False),
        threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1),
        features=features,
        memory=ram.measure(),
        disk_free=psutil.disk_usage(".").free,
        gpus=tuple(gpus()),
    )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu(cpuinfo: Path) -> tuple[str, tuple[str, ...]]:
    """Name and features of interest, from Linux's list of processors."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return platform.processor() or "unknown", ()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("model name", platform.machine()), tuple(name for name in CPU_FEATURES if name in flags)
