"""Products of many rows with a model's matrices: written out in float16 one after another into one piece of memory."""

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from strata.ops.matvec.tables import codewords
from strata.ops.matvec.triton import PlaneMatrix, arch
from strata.ops.prompt import expand, product
from strata.ops.prompt.batch import PromptRows
from strata.ops.prompt.tiles import Tile, dense_tile, exact_tile

OPTIONS = {"enable_fp_fusion": False}


class Matrices:
    """Memory for one matrix, or several below one another, in float16.

    It is used again for every product: kernels of a stream run in order.
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._arch = device, arch(device)
        self._room = torch.empty(0, dtype=torch.float16, device=device)

    def reserve(self, numbers: int) -> None:
        """Have memory for matrices of so many numbers. What was written out before is lost."""
        if len(self._room) < numbers:
            self._room = torch.empty(numbers, dtype=torch.float16, device=self._device)

    def expand(self, *matrices: Any) -> Tensor:
        """Matrices of one width below one another: float16 [all N, K], times `halves.SCALE`. Valid until the next."""
        shapes = [_shape(w) for w in matrices]
        width = shapes[0][1]
        self.reserve(sum(rows for rows, _ in shapes) * width)
        first = 0
        for w, (rows, _) in zip(matrices, shapes, strict=True):
            self._write(w, rows, width, self._room[first * width :])
            first += rows
        return self._room[: first * width].view(first, width)

    def _write(self, w: Any, rows: int, width: int, out: Tensor) -> None:
        if not isinstance(w, PlaneMatrix):
            assert w.is_contiguous()
            expand.floats[(triton.cdiv(w.numel(), 2048),)](w, out, w.numel(), BLOCK=2048, num_warps=4, **OPTIONS)
            return
        blocks = width // 32
        tall, wide = (256, 8) if self._arch == 0 else (32, 4)
        expand.planes[(triton.cdiv(rows, tall), triton.cdiv(blocks, wide))](
            w.data, codewords(w.type, self._device), w.data if w.scale is None else w.scale, out, rows, blocks,
            KIND=w.type, SCALED=w.scale is not None, H=tall, L=wide, EVEN=blocks % wide == 0, num_warps=4, **OPTIONS,
        )  # fmt: skip

    def product(
        self, x: PromptRows, matrices: Sequence[Any], tile: Tile | None = None, dtype: torch.dtype = torch.float32
    ) -> Tensor:
        """``x @ w.T`` for matrices below one another: float32 or float16 [room, all N]."""
        w = self.expand(*matrices)
        (n, width), room = w.shape, len(x.half)
        out = torch.empty((room, n), dtype=dtype, device=self._device)
        t = dense_tile(self._arch, room) if tile is None else tile
        product.product[(triton.cdiv(room, t.rows) * triton.cdiv(n, t.columns),)](
            x.half, w, x.counts, out, n, width, EVEN=width % t.depth == 0, **t.constants(), **t.options()
        )
        return out

    def exact(self, x: PromptRows, w: Tensor) -> Tensor:
        """``x @ w.T`` with 22 bits of each operand, w float32 [N, K]: float32 [room, N]."""
        assert x.rest is not None
        (n, width), room, size = w.shape, len(x.half), w.numel()
        self.reserve(2 * size)
        high, rest = self._room[:size], self._room[size : 2 * size]
        expand.finely[(triton.cdiv(size, 2048),)](w, high, rest, size, BLOCK=2048, num_warps=4, **OPTIONS)
        out = torch.empty((room, n), dtype=torch.float32, device=self._device)
        t = exact_tile(self._arch, room)
        product.exact[(triton.cdiv(room, t.rows) * triton.cdiv(n, t.columns),)](
            x.half, x.rest, high, rest, x.counts, out, n, width, EVEN=width % t.depth == 0, **t.constants(),
            **t.options(),
        )  # fmt: skip
        return out


def _shape(w: Any) -> tuple[int, int]:
    return (w.rows, w.width) if isinstance(w, PlaneMatrix) else tuple(w.shape)
