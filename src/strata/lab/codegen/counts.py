"""What is counted in a kernel's machine code, and what may not be in it at all."""

import re
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from strata.lab.codegen.build import Built
from strata.lab.codegen.kernel import Kernel
from strata.lab.codegen.sass import Code, disassemble

MEMORY = ("LDG", "STG", "LDL", "STL", "LDS", "STS", "LDSM", "ATOM", "RED", "LDGSTS", "UBLKCP")
"""Families counted with all their modifiers: width (.64, .128), read-only path (.CONSTANT), cache policy."""

MATHS = ("IDP", "IMMA", "HMMA", "HGMMA", "IGMMA", "FFMA", "MUFU", "SHFL", "BAR", "CALL", "PRMT", "F2F", "DADD", "DFMA")
"""Families counted as a whole: dot products, matrix units, contraction, shuffles, barriers."""

FORBIDDEN = re.compile(
    r"\b(?:fma\.|\S+\.approx|\S+\.ftz|div\.full|rsqrt\.|ex2\.|lg2\.|atom\S*\.f(?:16|32|64)|red\S*\.f(?:16|32|64))\S*"
)
"""Virtual instructions a kernel with promised bytes may not contain (docs/numerics.md)."""


@dataclass(frozen=True, slots=True)
class Counts:
    """One kernel on one architecture.

    Attributes:
        registers: of a thread; they bound how many programs run at once.
        stack: bytes of local memory of a thread: spills.
        shared: bytes of shared memory of a program.
        instructions: in the whole kernel.
        loop: instructions of its longest innermost loop, 0 without one; the compiler may have unrolled it.
        per_weight: thousandths of an instruction of a thread for one weight, in that loop, or in all without one: what
            an instruction-bound kernel's speed follows from. 0 where it makes no sense.
        memory: loads, stores and atomics by mnemonic.
        maths: other telling families.
    """

    registers: int
    stack: int
    shared: int
    instructions: int
    loop: int
    per_weight: int
    memory: dict[str, int]
    maths: dict[str, int]

    def flat(self) -> dict[str, int]:
        """Every number by a printable name."""
        values: dict[str, Any] = asdict(self)
        named = {**values.pop("memory"), **values.pop("maths")}
        return {**values, **named}


def count(built: Built, kernel: Kernel) -> Counts:
    """Read a compiled kernel."""
    code = disassemble(built.cubin)
    first, last = _longest_innermost(code)
    body = code.opcodes[first:last] or code.opcodes
    work = sum(_family(opcode) == kernel.work for opcode in body) * kernel.weights
    memory = Counter(opcode for opcode in code.opcodes if _family(opcode) in MEMORY)
    maths = Counter(family for opcode in code.opcodes if (family := _family(opcode)) in MATHS)
    return Counts(
        registers=code.registers,
        stack=code.stack,
        shared=code.shared,
        instructions=len(code.opcodes),
        loop=last - first,
        per_weight=round(1000 * len(body) / work) if work else 0,
        memory=dict(sorted(memory.items())),
        maths=dict(sorted(maths.items())),
    )


def forbidden(built: Built) -> list[str]:
    """Instructions in the virtual assembly that would break promised bytes."""
    lines = (line.split("//")[0] for line in built.ptx.splitlines())
    return sorted({found[0] for line in lines if (found := FORBIDDEN.search(line))})


def _family(opcode: str) -> str:
    return opcode.split(".", maxsplit=1)[0]


def _longest_innermost(code: Code) -> tuple[int, int]:
    """Where the loop without a loop inside begins, and ends."""

    def inner(loop: tuple[int, int]) -> bool:
        return not any(other != loop and loop[0] <= other[0] and other[1] <= loop[1] for other in code.loops)

    loops = [(first, last + 1) for first, last in code.loops if inner((first, last))]
    return max(loops, key=lambda loop: loop[1] - loop[0], default=(0, 0))
