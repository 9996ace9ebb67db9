"""The processor's name and what it can do, as Linux lists it."""

import platform
from pathlib import Path

FEATURES = ("avx2", "fma", "f16c", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "sve")
"""Instruction sets that decide how fast quantised weights can be computed with."""


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> tuple[str, tuple[str, ...]]:
    """Name and features of interest, from Linux's list of processors."""
    try:
        text = cpuinfo.read_text()
    except OSError:
        return platform.processor() or "unknown", ()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    flags = set((fields.get("flags") or fields.get("Features") or "").split())
    return fields.get("model name", platform.machine()), tuple(name for name in FEATURES if name in flags)
