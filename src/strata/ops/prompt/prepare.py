"""Kernels of windows on rows of a prompt, where memory holds more rows than there are."""

import triton
import triton.language as tl

from strata.ops.qsa import gpu as qsa


@triton.jit
def cells(
    qg, k, v, iq, ik, cos, sin, positions, starts, q_norm, k_norm, iq_norm, ik_norm, eps,
    slots, seen, begins, pages, page_count,
    q_out, iq_out, keys, values, raw, blocks, left, counts,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, IH: tl.constexpr, ID: tl.constexpr,
    HALF: tl.constexpr, RATIO: tl.constexpr,
):  # fmt: skip
    """`strata.ops.qsa.gpu.prepare` and `index` for the first ``counts`` rows, int32 [1]."""
    if tl.program_id(0) < tl.load(counts):
        if tl.program_id(1) < NH + 2 * NKV:
            qsa.prepare(
                qg, k, v, cos, sin, positions, q_norm, k_norm, eps, slots, seen, pages, page_count,
                q_out, keys, values, NH, NKV, HD, HALF, False,
            )  # fmt: skip
        else:
            qsa.index(
                iq, ik, cos, sin, positions, starts, iq_norm, ik_norm, eps, slots, seen, begins, pages, page_count,
                iq_out, raw, blocks, left, counts, counts, IH, ID, HALF, RATIO, NH + 2 * NKV,
                JOINED=False, WINDOW=False, COUNTED=False, PDL=False,
            )  # fmt: skip
