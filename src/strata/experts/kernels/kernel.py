"""One compiled kernel: a block type on a processor family."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from strata.errors import FormatError
from strata.experts.cpu import choose
from strata.experts.errors import KernelError
from strata.experts.kernels.activations import aligned, arrange
from strata.experts.kernels.cached import compiled
from strata.experts.kernels.decoded import Decoder
from strata.experts.kernels.decoders import DECODERS
from strata.experts.kernels.product import finish, group_step, name_of
from strata.experts.kernels.record import GROUP
from strata.experts.kernels.targets import TARGETS, Target
from strata.formats import BlockType, by_name
from strata.formats.block import F32, U8

Records = NDArray[np.int8]


@dataclass(frozen=True, slots=True)
class Kernel:
    """Products of one block type with up to eight rows (or more, at no gain) of quantised activations.

    Attributes:
        type: of the matrix.
        decoder: how its blocks are read.
        target: the processor family.
        run: ``run(raw, records, out, scratch, first, last)`` writes outputs ``first`` to ``last``; compiled, without
            the interpreter lock and without checks.
    """

    type: BlockType
    decoder: Decoder = field(repr=False)
    target: Target = field(repr=False)
    run: Callable[[U8, Records, F32, U8, int, int], None] = field(repr=False)

    def arrange(self, q: NDArray[np.int8], s: F32) -> Records:
        """Quantised activations as this kernel reads them; kernels of the same order and offset can share them.

        Args:
            q: ``int8 [T, K]``.
            s: ``float32 [T, K / 32]``.

        Returns:
            ``int8 [T, groups, 448]``.
        """
        return arrange(q, s, self.decoder.order(self.target), self.decoder.offset)

    def scratch(self, records: Records) -> U8:
        """Working memory for `run`, each thread its own: running sums, and a copy of the last rows."""
        rows, groups, _ = records.shape
        whole = groups * GROUP // self.type.weights * self.type.bytes
        # Copied rows together are shorter than `whole`; the last of them is read to `whole` bytes from its start.
        return aligned(64 * rows + 2 * whole).view(np.uint8)

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
        records = self.arrange(q, s)
        self.run(np.ascontiguousarray(raw), records, out, self.scratch(records), 0, len(raw))
        return out


@cache
def _compiled(type_name: str, path: str) -> Kernel:
    block_type, decoder, target = by_name(type_name), DECODERS[type_name], TARGETS[path]
    name = name_of(decoder, target, whole=block_type.weights == GROUP)
    group_bytes = GROUP // block_type.weights * block_type.bytes

    def run(raw, records, out, scratch, first, last):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  # compiled
        # Only addresses of arguments are taken: an array made here would be freed after its last use by name.
        n, row_bytes = raw.shape
        rows, groups, record = records.shape
        used, whole = 64 * rows, groups * group_bytes
        # What lies behind the end of a row is read and not used; behind the end of the matrix it must exist, so the
        # last rows are taken from a copy. Rows that are whole groups need none.
        safe = max(0, n + 1 - (whole + row_bytes - 1) // row_bytes)
        for i in range(used + (2 * whole if last > safe else 0)):
            scratch[i] = 0
        for r in range(safe, n if last > safe else safe):
            for i in range(row_bytes):
                scratch[used + (r - safe) * row_bytes + i] = raw[r, i]
        lanes, begin, to = np.intp(scratch.ctypes.data), np.intp(records.ctypes.data), np.intp(out.ctypes.data)
        base, copy = np.intp(raw.ctypes.data), np.intp(scratch.ctypes.data) + used - safe * row_bytes
        for r in range(first, last):
            row = (base if r < safe else copy) + r * row_bytes
            for g in range(groups):
                at, half = row + g * group_bytes, lanes + 32 * (g & 1)
                group_step(name, at, begin + g * record, groups * record, half, rows)  # type: ignore[call-arg]
            finish(lanes, to + 4 * r, 4 * n, rows)  # type: ignore[call-arg]  # numba passes the first argument

    matrix = "Array(uint8, 2, 'C', readonly=True)"
    signature = f"void({matrix}, int8[:,:,::1], float32[:,::1], uint8[::1], intp, intp)"
    return Kernel(block_type, decoder, target, compiled(run, signature))


def kernel(block_type: BlockType, path: str | None = None) -> Kernel:
    """The kernel of a block type, compiled at first use.

    Args:
        block_type: of the matrix.
        path: "avx512vbmi", "avx512", "avx2" or "plain"; None takes the best this processor has.

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
