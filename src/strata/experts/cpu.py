"""Which kernels this processor can run, and whether it keeps subnormal numbers."""

from functools import cache

import numpy as np
from llvmlite import binding
from numba import njit
from numba.core import config

from strata.experts.errors import KernelError

_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"})

# Best first. Ice Lake and Zen 4 have the first, Cascade Lake the second, Alder Lake the third, Haswell and Zen the last
# before plain.
NEEDS: dict[str, frozenset[str]] = {
    "avx512vbmi": _AVX512 | {"avx512vbmi"},
    "avx512": _AVX512,
    "avxvnni": frozenset({"avx2", "f16c", "avxvnni"}),
    "avx2": frozenset({"avx2", "f16c"}),
    "plain": frozenset(),
}


@cache
def features() -> frozenset[str]:
    """Instruction sets that Numba compiles for: the processor's, unless Numba was told of another processor."""
    settings = vars(config)  # filled from Numba's own environment variables when it is imported
    if settings["CPU_NAME"] is None and settings["CPU_FEATURES"] is None:
        return frozenset(name for name, present in binding.get_host_cpu_features().items() if present)
    named = (settings["CPU_FEATURES"] or "").split(",")
    return frozenset(name[1:] for name in named if name.startswith("+"))


def paths() -> tuple[str, ...]:
    """The kernel families this processor runs, best first; "plain" is always among them."""
    return tuple(path for path, needed in NEEDS.items() if needed <= features())


def choose(path: str | None = None) -> str:
    """The family to use: the best, or the one asked for.

    Raises:
        KernelError: if there is no such family, or this processor lacks something it needs.
    """
    if path is None:
        return paths()[0]
    if path not in NEEDS:
        raise KernelError(f"no kernels are called {path!r}; there are {', '.join(NEEDS)}")
    missing = NEEDS[path] - features()
    if missing:
        raise KernelError(
            f"the {path} kernels need {', '.join(sorted(missing))}, which this processor does not have; "
            f"it runs {', '.join(paths())}"
        )
    return path


@njit("boolean(float32, float32)", nogil=True)
def _keeps(small: np.float32, factor: np.float32) -> bool:
    # A product that becomes subnormal, and a subnormal number that is read: two bits of the control register.
    subnormal = small * factor
    return subnormal != np.float32(0) and subnormal / factor == small


def check_subnormals() -> None:
    """Refuse to compute in a thread that replaces subnormal numbers by zero.

    Some libraries set that mode to gain speed; results would then differ from other threads' and other machines'. The
    mode belongs to a thread, so every worker asks for itself.

    Raises:
        KernelError: if this thread flushes subnormal results or operands.
    """
    if not _keeps(np.float32(2.0**-126), np.float32(0.25)):
        raise KernelError(
            "this thread flushes subnormal numbers to zero, which changes results; something set that mode, "
            "for example torch.set_flush_denormal(True). Switch it off before starting workers"
        )
