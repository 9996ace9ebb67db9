"""Float matrices (F32, BF16, F16) times 1 to 8 rows of float32 activations, on the GPU.

**Order.** ``C`` float32 lanes over K, each adding ``w * x`` by one fused multiply-add in rising k, then a halving tree. C depends on
K alone, so a row's bytes depend neither on T nor on the other rows; it is another order than the CPU's float64
lanes (docs/numerics.md lets float matrices differ between sides). The tree is written as sums over axes of two, so layouts cannot
show. In the interpreter, which has no fused multiply-add, the last bits differ from a GPU's.

**The two numbers.** 2 or 4 bytes a weight over bandwidth; about 1 + T instructions a weight, for BF16 a third of the 15.8 an H200
has at full bandwidth with T = 4.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from strata.errors import FormatError


@triton.jit(do_not_specialize=["N"])
def float_kernel(w, x, out, N, K, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, C: tl.constexpr,
                 LOG: tl.constexpr, EVEN: tl.constexpr):  # fmt: skip
    """``out[t, n] = row n of w times row t of x``: a program takes RR tiles of H rows of w and all T rows of x.

    A tile is one axis of H rows by C lanes; eight numbers of a row to a thread.
    """
    i = tl.arange(0, H * C)
    top = tl.program_id(0) * (RR * H)
    sums = ()
    for _ in tl.static_range(T * RR):
        sums = sums + (tl.zeros((H * C,), tl.float32),)
    for first in range(0, K, C):
        k = first + i % C
        weights = ()
        for r in tl.static_range(RR):
            at = w + tl.minimum(top + r * H + i // C, N - 1).to(tl.int64) * K + k
            if EVEN:
                weights = weights + (tl.load(at).to(tl.float32),)
            else:
                weights = weights + (tl.load(at, mask=k < K, other=0.0).to(tl.float32),)
        added = ()
        for t in tl.static_range(T):
            if EVEN:
                values = tl.load(x + t * K + k)
            else:
                values = tl.load(x + t * K + k, mask=k < K, other=0.0)
            for r in tl.static_range(RR):
                added = added + (tl.fma(weights[r], values, sums[t * RR + r]),)
        sums = added
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            a = sums[t * RR + r]
            for level in tl.static_range(LOG):
                a = tl.sum(tl.reshape(a, (H, 2, C >> (level + 1))), 1)
            row = top + r * H + tl.arange(0, H)
            tl.store(out + t * N + row, tl.reshape(a, (H,)), mask=row < N)


def shape(width: int) -> tuple[int, int, int]:
    """C lanes, H rows of a tile, and warps for rows of ``width``: short rows share a warp, long ones get four."""
    if width < 1024:
        return 64, 4, 1
    return (256, 1, 1) if width < 4096 else (1024, 1, 4)


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
    wide, tall, warps = shape(width)
    float_kernel[(-(-n // (tall * tiles)),)](
        w, x, out, n, width, T=len(x), RR=tiles, H=tall, C=wide, LOG=wide.bit_length() - 1, EVEN=width % wide == 0,
        num_warps=warps, num_stages=1, enable_fp_fusion=False,
    )  # fmt: skip
    return out
