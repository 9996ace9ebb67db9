"""The kernel of a float matrix times 1 to 8 rows of activations; see `strata.ops.matvec.floats`."""

import triton
import triton.language as tl


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
                a = tl.sum(tl.reshape(a, (H, C >> (level + 1), 2)), 2)
            row = top + r * H + tl.arange(0, H)
            tl.store(out + t * N + row, tl.reshape(a, (H,)), mask=row < N)
