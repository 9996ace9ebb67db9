"""What this machine has, in numbers."""

import importlib.metadata
import os
import platform
from dataclasses import dataclass

import psutil

from strata import __version__
from strata.loading import ram
from strata.loading.cards import Gpu, gpus
from strata.loading.processor import processor

PACKAGES = ("torch", "triton", "numpy", "tokenizers")


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
    name, features = processor()
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
