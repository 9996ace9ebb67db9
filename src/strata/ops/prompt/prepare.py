"""Kernels of windows on rows of a prompt, where memory holds more rows than there are."""

import triton
import triton.language as tl

from strata.ops.qsa import gpu as qsa


@triton.jit
def cells(
    qg, k, v, iq, ik, cos, sin, positions, starts, q_norm, k_norm, iq_norm, ik_norm, eps,
    slots, seen, begins, pages, page_count,
    q_out, iq_out, keys, values, raw, blocks, counts,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, IH: tl.constexpr, ID: tl.constexpr,
    HALF: tl.constexpr, RATIO: tl.constexpr,
):  # fmt: skip
    """`strata.ops.qsa.gpu.prepare` for the first ``counts`` rows, int32 [1]."""
    if tl.program_id(0) < tl.load(counts):
        qsa.prepare(
            qg, k, v, iq, ik, cos, sin, positions, starts, q_norm, k_norm, iq_norm, ik_norm, eps,
            slots, seen, begins, pages, page_count, q_out, iq_out, keys, values, raw, blocks,
            NH, NKV, HD, IH, ID, HALF, RATIO, False,
        )  # fmt: skip
