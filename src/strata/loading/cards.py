"""NVIDIA GPUs, found without a library of theirs."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

_QUERY = "name,memory.total,driver_version,compute_cap"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card.

    Attributes:
        name: of the model.
        memory: bytes of VRAM; None if only the driver's files were there to ask.
        driver: version.
        capability: compute capability such as "8.6"; None likewise.
    """

    name: str
    memory: int | None
    driver: str
    capability: str | None


def gpus(proc: Path = Path("/proc/driver/nvidia")) -> list[Gpu]:
    """All cards, by nvidia-smi, or where that is missing by the driver's files below /proc."""
    return _by_tool() or _by_files(proc)


def _by_tool() -> list[Gpu]:
    command = ["nvidia-smi", f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return []  # not installed, or there is no card it can talk to
    return parse(done.stdout)


def parse(answer: str) -> list[Gpu]:
    """Cards from nvidia-smi's table; a field it does not know says "[N/A]" or the like."""
    found = []
    for line in answer.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 4:
            continue
        name, memory, driver, capability = fields
        known = re.fullmatch(r"\d+\.\d+", capability)
        mebibytes = int(memory) * 2**20 if memory.isdecimal() else None
        found.append(Gpu(name, mebibytes, driver, capability if known else None))
    return found


def _by_files(proc: Path) -> list[Gpu]:
    try:
        version = re.search(r"(\d+\.\d+(?:\.\d+)?)", (proc / "version").read_text())
        files = [path.read_text() for path in sorted((proc / "gpus").glob("*/information"))]
    except OSError:
        return []  # no driver
    models = [re.search(r"^Model:\s*(.+)$", text, re.MULTILINE) for text in files]
    driver = version[1] if version else "unknown"
    return [Gpu(model[1].strip() if model else "unknown", None, driver, None) for model in models]
