"""Kernels of windows on rows of a prompt, where memory holds more rows than there are."""

import triton
import triton.language as tl

from strata.ops.qsa import gpu as qsa


@triton.jit
def cells(
    qg, k, v, iq, ik, cos, sin, block_cos, block_sin, q_norm, k_norm, iq_norm, ik_norm, eps,
    slots, first, owner, lengths, pages, page_count,
    q_out, iq_out, keys, values, raw, blocks,
    NH: tl.constexpr, NKV: tl.constexpr, HD: tl.constexpr, IH: tl.constexpr, ID: tl.constexpr,
    HALF: tl.constexpr, RATIO: tl.constexpr,
):  # fmt: skip
    """`strata.ops.qsa.gpu.prepare` for the rows there are."""
    if tl.program_id(0) < tl.load(first + 1):
        qsa.prepare(
            qg, k, v, iq, ik, cos, sin, block_cos, block_sin, q_norm, k_norm, iq_norm, ik_norm, eps,
            slots, first, owner, lengths, pages, page_count, q_out, iq_out, keys, values, raw, blocks,
            NH, NKV, HD, IH, ID, HALF, RATIO,
        )  # fmt: skip
