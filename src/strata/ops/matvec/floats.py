"""Float matrices (F32, BF16, F16) times 1 to 8 rows of float32 activations, on the GPU.

**Order.** ``C`` float32 lanes over K, each adding ``w * x`` by one fused multiply-add in rising k, then a tree over
neighbours: lanes 0 and 1, 2 and 3, and so on. A thread holds four neighbours, one load of 16 bytes of activations, and
adds them before any leave it. C depends on K alone, so a row's bytes depend neither on T nor on the other rows; it is
another order than the CPU's float64 lanes (docs/numerics.md lets float matrices differ between sides). The tree is
written as sums over axes of two, so layouts cannot show. In the interpreter, which has no fused multiply-add, the last
bits differ from a GPU's.

**The two numbers.** 2 or 4 bytes a weight over bandwidth; about 1 + T instructions a weight, for BF16 a third of the
15.8 an H200 has at full bandwidth with T = 4. The matrices there are, of the router and the gates, are so small that
only latencies count: all weights of a row are under way before the first activation is needed.
"""

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.ops.dependent import launch
from strata.ops.matvec.float_kernel import float_kernel

AHEAD = 80
"""Registers of a thread that hold weights before they are needed, with few rows."""


def shape(width: int) -> tuple[int, int, int]:
    """C lanes, H rows of a tile, and warps for rows of ``width``: short rows share a warp, long ones get four."""
    if width < 1024:
        return 64, 2, 1
    return (128, 1, 1) if width < 4096 else (512, 1, 4)


def constants(width: int, rows: int, tiles: int = 1, *, few: bool = False) -> dict[str, int]:
    """The constants of a kernel for rows of so many numbers, and how many warps it has.

    Args:
        width: K.
        rows: T.
        tiles: below one another in a program.
        few: registers, for the company of products that need many programs at once.
    """
    wide, tall, warps = shape(width)
    ahead = AHEAD // (2 if few or rows > 4 else 1)
    steps = max(1, ahead * 32 * warps // (wide * tall * tiles))
    return {
        "T": rows, "K": width, "RR": tiles, "H": tall, "C": wide, "D": steps, "F": max(1, (8 if few else 16) // rows),
        "LEVELS": wide.bit_length() - 1, "num_warps": warps,
    }  # fmt: skip


def product(w: Tensor, x: Tensor, out: Tensor | None = None, tiles: int = 1) -> Tensor:
    """``[N, K]`` of float32, bfloat16 or float16 times ``float32 [T, K]``: ``float32 [T, N]``.

    Args:
        w: the matrix, contiguous.
        x: 1 to 8 rows.
        out: to write to, or None for a new tensor.
        tiles: below one another in a program; no effect on bytes.

    Raises:
        FormatError: operands do not fit together.
    """
    n, width = w.shape
    if not 1 <= len(x) <= 8 or x.shape[1] != width or x.dtype != torch.float32 or not x.is_contiguous():
        raise FormatError(f"a product takes 1 to 8 float32 rows of width {width}, not {x.dtype} {list(x.shape)}")
    if w.dtype not in {torch.float32, torch.bfloat16, torch.float16} or not w.is_contiguous():
        raise FormatError(f"a float matrix is contiguous float32, bfloat16 or float16, not {w.dtype}")
    out = torch.empty((len(x), n), dtype=torch.float32, device=w.device) if out is None else out
    chosen = constants(width, len(x), tiles)
    float_kernel[(-(-n // (chosen["H"] * tiles)),)](
        w, x, out, n, **chosen, num_stages=1, enable_fp_fusion=False, **launch(w.device)
    )
    return out
