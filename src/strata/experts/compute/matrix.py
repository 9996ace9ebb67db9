"""A stored matrix, or one per expert, as compiled code sees it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.experts.errors import KernelError
from strata.experts.kernels import kernel
from strata.experts.kernels.decoders import DECODERS
from strata.experts.kernels.floats import FLOAT_TYPES, float_kernel
from strata.formats import BlockType
from strata.formats.block import F32, U8

KERNEL_TYPES = frozenset({*DECODERS, *FLOAT_TYPES})
"""Names of the block types that products are computed from as they are stored."""

# Words of a descriptor, in bytes.
ADDRESS, EACH, ROW, END, CODE, ORDER, OFFSET, OUTPUTS, WIDTH, SCALES, SCALE_STEP, PLACES = range(0, 96, 8)


class Stored:
    """Where a matrix lies and what reads it. Keeps what it points to.

    Attributes:
        experts: how many matrices.
        n: outputs of each.
        k: inputs.
        address: of the descriptor.
        nbytes: of one matrix.
        scales: of finished sums, one or one per expert.
    """

    __slots__ = ("_kept", "address", "experts", "k", "n", "nbytes", "scales")

    def __init__(
        self,
        block_type: BlockType,
        raw: U8,
        scale: F32 | None = None,
        *,
        path: str | None = None,
        places: tuple[NDArray[np.int64], int] | None = None,
    ) -> None:
        """Describe a matrix.

        Args:
            block_type: of its blocks.
            raw: ``uint8 [N, row_bytes]`` or ``[E, N, row_bytes]``; may be a read-only map. Rows may lie apart.
            scale: one number, or one per expert.
            path: as for `strata.experts.kernels.kernel`.
            places: addresses of the experts' first rows, int64 [E], which may change between calls, and the address
                behind the last byte that may be read; rows of an expert then follow one another there, and nothing is
                read of ``raw``, which says the shape.

        Raises:
            KernelError: if the parts do not fit together.
        """
        if raw.dtype != np.uint8 or raw.ndim not in {2, 3} or not raw.size or raw.strides[-1] != 1:
            raise KernelError(f"a stored matrix is uint8 [N, bytes] or [E, N, bytes], not {raw.dtype} {raw.shape}")
        self.experts = len(raw) if raw.ndim == 3 else 1
        self.n, row_bytes = raw.shape[-2:]
        self.k = row_bytes // block_type.bytes * block_type.weights
        scales = np.ones(1, np.float32) if scale is None else np.ascontiguousarray(scale, np.float32).reshape(-1)
        if len(scales) not in {1, self.experts} or row_bytes % block_type.bytes:
            raise KernelError(
                f"{len(scales)} scales and rows of {row_bytes} bytes do not go with {self.experts} matrices"
            )
        order: U8 | None = None
        code: Any
        offset = 0
        if block_type.name in FLOAT_TYPES:
            code = float_kernel(block_type.name, path)
        else:
            ready = kernel(block_type, path)
            code, offset = ready.code, ready.decoder.offset
            order = np.ascontiguousarray(ready.decoder.order(ready.target))
        last = sum((size - 1) * step for size, step in zip(raw.shape, raw.strides, strict=True)) + 1
        words = [raw.ctypes.data, raw.strides[0] if raw.ndim == 3 else 0, raw.strides[-2], raw.ctypes.data + last]
        words += [code.address, 0 if order is None else order.ctypes.data, offset, self.n, self.k]
        words += [scales.ctypes.data, 4 if len(scales) > 1 else 0]
        words.append(0 if places is None else places[0].ctypes.data)
        if places is not None:
            if places[0].shape != (self.experts,) or not places[0].flags.c_contiguous or places[0].dtype != np.int64:
                raise KernelError(f"{self.experts} experts need as many addresses, not {places[0].shape}")
            words[ROW // 8], words[END // 8] = row_bytes, places[1]
        descriptor = np.array(words, dtype=np.int64)
        self.nbytes = self.n * row_bytes
        self.address = descriptor.ctypes.data
        self.scales = scales
        self._kept = (raw, code, order, scales, descriptor, places)
