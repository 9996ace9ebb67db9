"""Compile a kernel for an architecture that need not be there."""

from dataclasses import dataclass

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from strata.lab.codegen.kernel import Kernel

LANES = 32
"""Threads of a warp."""

ALIGNED = 16
"""Bytes: every pointer handed to a kernel is at least so aligned, which lets it load 16 bytes at once."""


@dataclass(frozen=True, slots=True)
class Built:
    """What the compiler returned.

    Attributes:
        ptx: the virtual assembly.
        cubin: the machine code.
    """

    ptx: str
    cubin: bytes


def version() -> str:
    """Of the compiler; each has its own baseline."""
    return str(triton.__version__)


def build(kernel: Kernel, architecture: int) -> Built:
    """Compile `kernel` for one compute capability.

    Raises:
        Exception: whatever Triton raises when it cannot.
    """
    names = list(kernel.function.arg_names)
    signature = {name: kernel.signature.get(name, "constexpr") for name in names}
    aligned = [["tt.divisibility", ALIGNED]]
    chosen = kernel.aligned
    if chosen is None:
        chosen = tuple(name for name in names if signature[name].startswith("*"))
    attributes = {(names.index(name),): aligned for name in chosen}
    source = ASTSource(kernel.function, signature, dict(kernel.constants), attributes)
    options = {"num_warps": kernel.warps, "num_stages": kernel.stages, "enable_fp_fusion": False}
    if kernel.registers:
        options["maxnreg"] = kernel.registers
    compiled = triton.compile(source, target=GPUTarget("cuda", architecture, LANES), options=options)
    return Built(compiled.asm["ptx"], compiled.asm["cubin"])
