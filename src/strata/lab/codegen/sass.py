"""Machine code as a list of instructions, read with the disassembler that comes with Triton."""

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import triton.backends.nvidia

from strata.errors import StrataError

_LINE = re.compile(
    r"^\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?(?P<opcode>[A-Z][\w.]*)(?P<rest>[^;]*);", re.MULTILINE
)
_LABEL = re.compile(r"^\s*(?P<label>\.L_x_\d+):", re.MULTILINE)
_USAGE = re.compile(r"REG:(?P<registers>\d+) STACK:(?P<stack>\d+) SHARED:(?P<shared>\d+) LOCAL:(?P<local>\d+)")


@dataclass(frozen=True, slots=True)
class Code:
    """One kernel's machine code.

    Attributes:
        opcodes: every instruction's mnemonic with its modifiers, in order, without the padding behind the end.
        loops: (first, last) instruction of every loop, by its backward branch.
        registers: of a thread.
        stack: bytes of a thread; above 0 something lives in local memory.
        shared: bytes of a program.
    """

    opcodes: tuple[str, ...]
    loops: tuple[tuple[int, int], ...]
    registers: int
    stack: int
    shared: int


def disassemble(cubin: bytes) -> Code:
    """Read a cubin of one kernel.

    Raises:
        StrataError: the disassembler failed or its output has another form.
    """
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = _run("nvdisasm", "-c", file.name)
        usage = _USAGE.search(_run("cuobjdump", "-res-usage", file.name))
    if usage is None:
        raise StrataError("cuobjdump printed no resource usage; its output has another form in this version")
    opcodes, loops = _parse(listing)
    if not opcodes:
        raise StrataError("nvdisasm printed no instructions; its output has another form in this version")
    numbers = {name: int(value) for name, value in usage.groupdict().items()}
    return Code(opcodes, loops, numbers["registers"], numbers["stack"] + numbers["local"], numbers["shared"])


def _parse(listing: str) -> tuple[tuple[str, ...], tuple[tuple[int, int], ...]]:
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    for line in listing.splitlines():
        if label := _LABEL.match(line):
            labels[label["label"]] = len(opcodes)
        elif found := _LINE.match(line):
            if found["opcode"].startswith("BRA") and (target := re.search(r"\.L_x_\d+", found["rest"])):
                branches.append((len(opcodes), target[0]))
            opcodes.append(found["opcode"])
    loops = [(labels[target], at) for at, target in branches if target in labels and labels[target] <= at]
    # Behind the last exit or return come a branch to itself and no-operations: padding.
    end = max((i for i, opcode in enumerate(opcodes) if opcode.startswith(("EXIT", "RET"))), default=-1) + 1
    return tuple(opcodes[:end]), tuple(loop for loop in loops if loop[1] < end)


def _run(tool: str, *arguments: str) -> str:
    path = Path(triton.backends.nvidia.__path__[0], "bin", tool)
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)  # noqa: S603  # our own paths
    if done.returncode:
        raise StrataError(f"{tool} failed: {done.stderr.strip()[-300:]}")
    return done.stdout
