"""The residual streams of a prompt: a block's output written back and the streams normalised on the same way."""

import triton
import triton.language as tl

from strata.ops.device import sigmoid, silu
from strata.ops.prompt.halves import to_half


@triton.jit
def write_norm(
    residual, out, strengths, norm, eps, counts, xn,
    H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr, WRITE: tl.constexpr,
):  # fmt: skip
    """Add a block's output to a stream, and normalise the stream for the next read. Grid: (most rows, S).

    Args:
        residual: float32 [T, S*H], changed in place if WRITE.
        out: float32 [T, H], the block's output; strengths: float32 [T, S], raw, as the read before the block left
            them. Unused unless WRITE.
        norm: float32 [S*H]; eps: of the norm.
        counts: int32, its first is T.
        xn: float16 [T, S*H], out.
        BLOCK: power of two, at least H.
    """
    row, stream = tl.program_id(0), tl.program_id(1)
    if row < tl.load(counts):
        h = tl.arange(0, BLOCK)
        inside = h < H
        at = row * (S * H) + stream * H + h
        x = tl.load(residual + at, mask=inside, other=0.0)
        if WRITE:
            strength = 2.0 * sigmoid(tl.load(strengths + row * S + stream) / S)
            x += strength * tl.load(out + row * H + h, mask=inside, other=0.0)
            tl.store(residual + at, x, mask=inside)
        y = x * (1.0 / tl.sqrt_rn(tl.sum(x * x, 0) / H + eps))
        tl.store(xn + at, to_half(y * tl.load(norm + stream * H + h, mask=inside, other=0.0)), mask=inside)


@triton.jit
def write(residual, out, strengths, counts, H: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr):
    """Add a block's output to a stream and nothing else. Grid: (most rows, S)."""
    row, stream = tl.program_id(0), tl.program_id(1)
    if row < tl.load(counts):
        h = tl.arange(0, BLOCK)
        inside = h < H
        at = residual + row * (S * H) + stream * H + h
        strength = 2.0 * sigmoid(tl.load(strengths + row * S + stream) / S)
        new = tl.load(out + row * H + h, mask=inside, other=0.0)
        tl.store(at, tl.load(at, mask=inside, other=0.0) + strength * new, mask=inside)


@triton.jit
def halve(x, out, size, BLOCK: tl.constexpr):
    """``size`` numbers of float32 as float16. Grid: (size / BLOCK,)."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, to_half(tl.load(x + i, mask=i < size, other=0.0)), mask=i < size)


@triton.jit
def swiglu(x, counts, out, N: tl.constexpr, BLOCK: tl.constexpr):
    """``out = silu(gate) * up`` of the shared expert. Grid: (N / BLOCK, most rows).

    Args:
        x: float32 [T, 2 N], gate then up.
        counts: int32, its first is T.
        out: float16 [T, N], out.
    """
    row, n = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if row < tl.load(counts):
        inside = n < N
        gate = tl.load(x + row * (2 * N) + n, mask=inside, other=0.0)
        up = tl.load(x + row * (2 * N) + N + n, mask=inside, other=0.0)
        tl.store(out + row * N + n, to_half(silu(gate) * up), mask=inside)
