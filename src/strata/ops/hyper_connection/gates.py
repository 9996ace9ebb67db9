"""The product `up` of a read and the gated mean behind it, in one launch.

A program takes the rows of `up` that gate 32 neighbouring numbers in all streams, so that sums become gates, gates the
mean, and the mean a quantised block, without leaving the program. Its weights are loaded before it waits for the
activations, while the small launch before it runs. Sums are in the judge's order (docs/numerics.md), the mean
in that of `hyper_connection.gpu.mix`: bytes are those of a product followed by it.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from strata.ops.dependent import launch, release
from strata.ops.device import sigmoid, store_quantised
from strata.ops.matvec.order import row_sums
from strata.ops.matvec.tables import codewords
from strata.ops.matvec.triton import OPTIONS, Activations, PlaneMatrix

_STEP = 4  # blocks of a row at a time: 10 of 320 numbers leave two threads of four idle in the last of three steps only
_ALONE = 4  # so many rows have a program each for the same weights: all fit beside one another, three to a processor
_AHEAD = 3  # steps whose weights are loaded before the wait: four streams of three blocks are about 110 registers


@triton.jit(do_not_specialize=["rows"])
def up_mix(
    w, table, q, s, z, scale, xn, m, m_q, m_s, m_z, rows,
    KIND: tl.constexpr, T: tl.constexpr, S: tl.constexpr, WIDTH: tl.constexpr, L: tl.constexpr, B: tl.constexpr,
    D: tl.constexpr, SCALED: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Mean over streams of ``sigmoid(up x) * xn``, and its quantised form. Grid: (WIDTH / 32, ceil(rows / T)).

    Args:
        w: planes of ``[S * WIDTH, 32 B]`` of type KIND.
        table: the type's grid, or any pointer.
        q, s, z: quantised rows of activations, q as words; where T does not divide them, the last is computed twice.
        scale: float32 [1], of the whole matrix; unused unless SCALED.
        xn: float32 [rows, S * WIDTH], normalised streams.
        m: float32 [rows, WIDTH], out.
        m_q: int8 [rows, 2, WIDTH/32, 16], out.
        m_s, m_z: float32 [rows, WIDTH/32], out.
        T: rows of a program.
        WIDTH: of a stream, a multiple of 32.
        L: blocks of a step; L warps are a block to a thread.
        D: steps whose weights are loaded before the wait.
    """
    release(PDL)
    top = tl.program_id(0) * 32
    x_rows = ()
    for t in tl.static_range(T):
        x_rows = x_rows + (tl.minimum(tl.program_id(1) * T + t, rows - 1),)
    sums = row_sums(KIND, None, T, S, 32, L, D, PDL, (w,), (table,), (q, s, z), x_rows, top, S * WIDTH, B, WIDTH)
    h = top + tl.arange(0, 32)
    streams = ()
    for t in tl.static_range(T):  # all loads before the first store, which no load may overtake
        for stream in tl.static_range(S):
            streams = streams + (tl.load(xn + (x_rows[t] * S + stream) * WIDTH + h),)
    for t in tl.static_range(T):
        row = x_rows[t]
        total = tl.zeros([32], tl.float32)
        for stream in tl.static_range(S):
            raw = sums[t * S + stream]
            if SCALED:
                raw = raw * tl.load(scale)
            total += sigmoid(raw) * streams[t * S + stream]
        mean = total / S
        tl.store(m + row * WIDTH + h, mean)
        store_quantised(m_q, m_s, m_z, row, mean, top // 32, WIDTH // 32, WIDTH // 32, 1)


def gated_mean(up: PlaneMatrix, x: Activations, xn: Tensor, m: Tensor, out: Activations) -> None:
    """The mean of the streams ``xn`` float32 [T, S*H] gated by ``up x``, to ``m`` float32 [T, H] and ``out``.

    `up` is [S*H, r], rows are 1 to 8, H is a multiple of 32.
    """
    (rows, width), blocks = m.shape, up.width // 32
    together = 1 if rows <= _ALONE else 2
    up_mix[(width // 32, -(-rows // together))](
        up.data, codewords(up.type, m.device), x.q.view(torch.int32), x.s, x.z,
        x.s if up.scale is None else up.scale, xn, m, out.q, out.s, out.z, rows,
        KIND=up.type, T=together, S=xn.shape[1] // width, WIDTH=width, L=_STEP, B=blocks, D=_AHEAD,
        SCALED=up.scale is not None, num_warps=_STEP, **OPTIONS, **launch(m.device),
    )  # fmt: skip
