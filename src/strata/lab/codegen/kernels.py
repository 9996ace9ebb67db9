"""Every kernel that is checked."""

from strata.lab.codegen.kernel import Kernel


def all_kernels() -> list[Kernel]:
    """All of them, from their operations' folders."""
    return []
