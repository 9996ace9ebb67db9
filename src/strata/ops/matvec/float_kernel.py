"""The kernel of a float matrix times 1 to 8 rows of activations; see `strata.ops.matvec.floats`."""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait


@triton.jit
def _number(where, OFF: tl.constexpr, K: tl.constexpr, C: tl.constexpr):
    """Numbers of a step that starts at ``OFF``; zero behind the end of a row."""
    if OFF + C <= K:
        value = tl.load(where + OFF)
    else:
        value = tl.load(where + OFF, mask=OFF + tl.arange(0, where.shape[0]) % C < K, other=0.0)
    return value


@triton.jit
def store_float_product(w, x, out, top, N, K: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr,
                        C: tl.constexpr, D: tl.constexpr, F: tl.constexpr, LEVELS: tl.constexpr,
                        PDL: tl.constexpr):  # fmt: skip
    """``out[t, n] = row n of w times row t of x`` for RR tiles of H rows of w from ``top`` on, and all T rows of x.

    A tile is one axis of H rows by C lanes; those of ``D`` steps are loaded before `wait`. That comes again every
    ``F`` steps, where it costs nothing and keeps the compiler from loading all activations at once, into registers
    that are not there.
    """
    i = tl.arange(0, H * C)
    STEPS: tl.constexpr = (K + C - 1) // C
    places, sums = (), ()
    for r in tl.static_range(RR):
        places = places + (w + tl.minimum(top + r * H + i // C, N - 1).to(tl.int64) * K + i % C,)
    for _ in tl.static_range(T * RR):
        sums = sums + (tl.zeros((H * C,), tl.float32),)
    weights = ()
    for step in tl.static_range(min(D, STEPS)):
        for r in tl.static_range(RR):
            weights = weights + (_number(places[r], step * C, K, C),)
    wait(PDL)
    for step in tl.static_range(STEPS):
        if step + D < STEPS:
            for r in tl.static_range(RR):
                weights = weights + (_number(places[r], (step + D) * C, K, C),)
        if step and step % F == 0:
            wait(PDL)
        added = ()
        for t in tl.static_range(T):
            values = _number(x + t * K + i % C, step * C, K, C)
            for r in tl.static_range(RR):
                added = added + (tl.fma(weights[step * RR + r].to(tl.float32), values, sums[t * RR + r]),)
        sums = added
    for t in tl.static_range(T):
        for r in tl.static_range(RR):
            a = sums[t * RR + r]
            for level in tl.static_range(LEVELS):
                a = tl.sum(tl.reshape(a, (H, C >> (level + 1), 2)), 2)
            row = top + r * H + tl.arange(0, H)
            tl.store(out + t * N + row, tl.reshape(a, (H,)), mask=row < N)


@triton.jit(do_not_specialize=["N"])
def float_kernel(w, x, out, N, K: tl.constexpr, T: tl.constexpr, RR: tl.constexpr, H: tl.constexpr, C: tl.constexpr,
                 D: tl.constexpr, F: tl.constexpr, LEVELS: tl.constexpr, PDL: tl.constexpr):  # fmt: skip
    """A whole matrix; a program takes RR tiles of H rows of it."""
    release(PDL)
    store_float_product(w, x, out, tl.program_id(0) * (RR * H), N, K, T, RR, H, C, D, F, LEVELS, PDL)
