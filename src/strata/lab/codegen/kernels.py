"""Every kernel that is checked."""

from strata.lab.codegen.kernel import ARCHITECTURES, Kernel
from strata.lab.rates.stream import BLOCK, WARPS, stream
from strata.ops import kernels
from strata.ops.kernels.entry import Kernel as Entry

PER_DOT = 4
"""Weights of an integer dot product."""


def all_kernels(*, whole: bool = False) -> list[Kernel]:
    """What each architecture's launches compile.

    Args:
        whole: every block type, number of rows and shape; else a tenth that meets every decoder, tile and body.
    """
    chosen = kernels.KERNELS.__getitem__ if whole else kernels.core
    found = [_as_checked(entry, architecture) for architecture in ARCHITECTURES for entry in chosen(architecture)]
    return [
        *found,
        *(_measuring(architecture, write=write) for architecture in ARCHITECTURES for write in (False, True)),
    ]


def _measuring(architecture: int, *, write: bool) -> Kernel:
    """The kernel that `strata calibrate` measures memory and link with."""
    return Kernel(
        f"rates.{'copy' if write else 'read'}",
        stream,
        {"source": "*i32", "target": "*i32", "words": "i32"},
        {"WRITE": write, "BLOCK": BLOCK},
        aligned=("source", "target", "words"),
        warps=WARPS,
        architectures=(architecture,),
    )


def _as_checked(entry: Entry, architecture: int) -> Kernel:
    rows = int(entry.constants.get("T", 0)) if entry.normative else 0
    return Kernel(
        entry.name,
        entry.function,
        entry.signature,
        entry.constants,
        aligned=entry.aligned,
        warps=entry.warps,
        stages=entry.options.get("num_stages", 1),
        registers=entry.options.get("maxnreg", 0),
        work="IDP" if rows else "",
        weights=PER_DOT / rows if rows else 0.0,
        normative=entry.normative,
        architectures=(architecture,),
    )
