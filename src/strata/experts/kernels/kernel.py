"""One compiled kernel: a block type on a processor family."""

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import FormatError
from strata.experts.cpu import choose
from strata.experts.errors import KernelError
from strata.experts.kernels.activations import arrange
from strata.experts.kernels.cached import task_function
from strata.experts.kernels.decoded import Decoder
from strata.experts.kernels.decoders import DECODERS
from strata.experts.kernels.memory import bytes_at, peek, peek_float, stack, stack_of
from strata.experts.kernels.product import finish, group_step, name_of
from strata.experts.kernels.record import GROUP, RECORD
from strata.experts.kernels.targets import TARGETS, Target
from strata.experts.kernels.task import (
    INPUTS,
    LIMIT,
    OUTPUTS,
    ROWS,
    ROWS_TOGETHER,
    SCALE,
    STRIDE,
    WEIGHTS,
    WIDTH,
    run_rows,
)
from strata.formats import BlockType, by_name
from strata.formats.block import F32, U8

Records = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Products of one block type with rows of quantised activations.

    Attributes:
        type: of the matrix.
        decoder: how its blocks are read.
        target: the processor family.
        code: the function of its matrix tasks; see `strata.experts.kernels.task`.
    """

    type: BlockType
    decoder: Decoder = field(repr=False)
    target: Target = field(repr=False)
    code: Any = field(repr=False)

    def arrange(self, q: NDArray[np.int8], s: F32) -> Records:
        """Quantised activations as this kernel reads them; kernels of the same order and offset can share them.

        Args:
            q: ``int8 [T, K]``.
            s: ``float32 [T, K / 32]``.

        Returns:
            ``int8 [T, groups, 448]``.
        """
        return arrange(q, s, self.decoder.order(self.target), self.decoder.offset)

    def run(self, raw: U8, records: Records, out: F32, first: int, last: int) -> None:
        """Write outputs ``first`` to ``last`` without checks and the interpreter lock.

        Args:
            raw: ``uint8 [N, row_bytes]``, contiguous.
            records: from `arrange`.
            out: ``float32 [T, N]``, contiguous.
            first: output.
            last: output behind the last one.
        """
        width = raw.shape[1] // self.type.bytes * self.type.weights
        run_rows(self.code, raw, width, records, out, (first, last))

    def product(self, raw: U8, q: NDArray[np.int8], s: F32, out: F32 | None = None) -> F32:
        """Matrix times activations: `strata.experts.judge.product`'s bytes.

        Args:
            raw: ``uint8 [N, row_bytes]``; may be a read-only memory map.
            q: ``int8 [T, K]``.
            s: ``float32 [T, K / 32]``.
            out: where to write, ``float32 [T, N]``.

        Raises:
            KernelError: if the operands do not fit together.
        """
        width = raw.shape[-1] // self.type.bytes * self.type.weights
        rows = len(q)
        if raw.ndim != 2 or raw.dtype != np.uint8 or raw.shape[1] != self.type.row_bytes(width):
            raise KernelError(f"a {self.type.name} matrix is uint8 [N, row bytes], not {raw.dtype} {list(raw.shape)}")
        if q.shape != (rows, width) or s.shape != (rows, width // 32) or not rows:
            raise KernelError(
                f"a matrix of width {width} needs codes [T, {width}] and scales [T, {width // 32}], "
                f"not {list(q.shape)} and {list(s.shape)}"
            )
        if q.dtype != np.int8 or s.dtype != np.float32:
            raise KernelError(f"activations are int8 codes and float32 scales, not {q.dtype} and {s.dtype}")
        if out is None:
            out = np.empty((rows, len(raw)), dtype=np.float32)
        elif out.shape != (rows, len(raw)) or out.dtype != np.float32 or not out.flags.c_contiguous:
            raise KernelError(
                f"the output is contiguous float32 [{rows}, {len(raw)}], not {out.dtype} {list(out.shape)}"
            )
        self.run(np.ascontiguousarray(raw), self.arrange(q, s), out, 0, len(raw))
        return out


@cache
def _compiled(type_name: str, path: str) -> Kernel:
    block_type, decoder, target = by_name(type_name), DECODERS[type_name], TARGETS[path]
    name = name_of(decoder, target, whole=block_type.weights == GROUP)
    group_bytes, lanes_bytes = GROUP // block_type.weights * block_type.bytes, 64 * ROWS_TOGETHER

    def run(task, first, last):  # noqa: ANN001, ANN202  # compiled
        base, stride, limit = peek(task + WEIGHTS), peek(task + STRIDE), peek(task + LIMIT)
        count, inputs, outputs = peek(task + ROWS), peek(task + INPUTS), peek(task + OUTPUTS)
        groups, scale = (peek(task + WIDTH) + GROUP - 1) // GROUP, peek_float(peek(task + SCALE))
        whole = groups * group_bytes
        lanes = stack(lanes_bytes)
        cleared = bytes_at(lanes)
        for i in range(lanes_bytes):
            cleared[i] = 0
        # What lies behind the end of a row is read and not used; behind the limit it must not be, so a row that
        # reaches there is taken from a copy. Rows that are whole groups need none.
        beyond = base + (last - 1) * stride + whole - limit
        copy = stack_of(whole if beyond > 0 else 0)
        for start in range(0, count, ROWS_TOGETHER):
            rows, records, to = min(ROWS_TOGETHER, count - start), inputs + 8 * start, outputs + 8 * start
            for r in range(first, last):
                row = base + r * stride
                if row + whole > limit:
                    source, target_bytes = bytes_at(row), bytes_at(copy)
                    for i in range(whole):
                        target_bytes[i] = source[i] if row + i < limit else 0
                    row = copy
                for g in range(groups):
                    half = lanes + 32 * (g & 1)
                    group_step(name, row + g * group_bytes, records, g * RECORD, half, rows)
                finish(lanes, to, 4 * r, rows, scale)
        return 0

    return Kernel(block_type, decoder, target, task_function(run))


def kernel(block_type: BlockType, path: str | None = None) -> Kernel:
    """The kernel of a block type, compiled at first use.

    Args:
        block_type: of the matrix.
        path: "avx512vbmi", "avx512", "avxvnni", "avx2" or "plain"; None takes the best this processor has.

    Raises:
        FormatError: for a type without an order of operations.
        KernelError: for a path that is unknown or not for this processor.
    """
    if block_type.name not in DECODERS:
        raise FormatError(f"no kernel reads {block_type.name}; there are kernels for {', '.join(DECODERS)}")
    return _compiled(block_type.name, choose(path))


def product(
    block_type: BlockType, raw: U8, q: NDArray[np.int8], s: F32, out: F32 | None = None, *, path: str | None = None
) -> F32:
    """Matrix times quantised activations; see `Kernel.product` and `kernel`."""
    return kernel(block_type, path).product(raw, q, s, out)
