"""A kernel as it is compiled: function, argument types, constants, launch options."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ARCHITECTURES = (75, 80, 86, 89, 90, 120)
"""Compute capabilities times ten: Turing, A100, RTX 30, RTX 40, Hopper, RTX 50."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One compilation.

    Attributes:
        name: unique; the baseline is keyed by it.
        function: the ``@triton.jit`` function.
        signature: Triton types of the run-time arguments by name, in the function's order; ``*i32``, ``i32``, ``fp32``.
        constants: values of the ``tl.constexpr`` arguments.
        aligned: arguments that are multiples of 16, such as pointers; None for all pointers.
        warps: of a program.
        stages: of software pipelining.
        registers: most that a thread may have, 0 for what the compiler likes.
        work: a family of instructions of which every weight needs an equal share, such as "IDP" (integer dot product),
            whatever the compiler unrolls; empty where instructions per weight make no sense.
        weights: matrix weights one thread handles with one such instruction.
        normative: the bytes are promised to equal a CPU's, so no contraction and no approximate operation may appear.
        architectures: what it is compiled for.
    """

    name: str
    function: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    aligned: tuple[str, ...] | None = None
    warps: int = 1
    stages: int = 1
    registers: int = 0
    work: str = ""
    weights: float = 0.0
    normative: bool = False
    architectures: tuple[int, ...] = ARCHITECTURES
