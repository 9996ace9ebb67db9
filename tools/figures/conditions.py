"""What numbers depend on besides the code."""

import os
import platform
import shutil
import subprocess
import time
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]

ASKED = (
    "name", "driver_version", "memory.total", "memory.used", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.draw",
    "power.limit", "temperature.gpu", "pcie.link.gen.current", "pcie.link.width.current",
)  # fmt: skip


def conditions(folders: dict[str, Path]) -> dict[str, Any]:
    """The machine as it is found.

    Args:
        folders: that are written to, by what for.
    """
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "gpu": gpu(),
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(1024 * _kb("MemTotal") / 1e9, 1),
        "available_gb": round(available() / 1e9, 1),
        "system": platform.release(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in ("torch", "triton")}
        | {name: _version(name) for name in ("numpy", "numba", "llvmlite")},
        "folders": {what: folder(path) for what, path in folders.items()},
        "source": source(),
    }  # fmt: skip


def gpu() -> dict[str, str]:
    """What nvidia-smi says now; empty where there is none."""
    command = ["nvidia-smi", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader", "--id=0"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(zip(ASKED, (value.strip() for value in said.split(",")), strict=False))


def folder(path: Path) -> dict[str, Any]:
    """File system, device and room of a folder."""
    best = ("", "", "")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, where, kind = line.split()[:3]
        if path.resolve().is_relative_to(where) and len(where) > len(best[1]):
            best = device, where, kind
    return {"path": str(path), "device": best[0], "type": best[2], "free_gb": round(shutil.disk_usage(path).free / 1e9)}


def source() -> str:
    """A short digest of the code that is measured."""
    digest = blake2b(digest_size=6)
    for path in sorted((ROOT / "src").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def available() -> int:
    """Bytes of memory that can still be taken."""
    return 1024 * _kb("MemAvailable")


def _kb(name: str) -> int:
    return int((_first("/proc/meminfo", name) or "0").split()[0])


def _first(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
