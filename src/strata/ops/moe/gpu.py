"""The router's choice on a GPU (model spec, section 9)."""

import triton
import triton.language as tl

from strata.ops.device import sigmoid


@triton.jit
def route(logits, experts, weights, shared, E: tl.constexpr, TOPK: tl.constexpr, BLOCK: tl.constexpr):
    """The TOPK most probable experts of each row and their share, falling; of equals the lower. Grid: (T,).

    Args:
        logits: float32 [T, E + 1], the shared expert's own gate last.
        experts: int32 [T, TOPK], out.
        weights: float32 [T, TOPK], out; a row's sum to one.
        shared: float32 [T], out: weight of the shared expert.
        BLOCK: power of two, at least E.
    """
    row = tl.program_id(0)
    e = tl.arange(0, BLOCK)
    x = tl.load(logits + row * (E + 1) + e, mask=e < E, other=float("-inf"))
    # Softmax over all and a new share among the chosen is softmax over the chosen: exp(x - top) in both.
    top = tl.max(x, 0)
    total = tl.full([], 0.0, tl.float32)
    left = tl.where(e < E, 1, 0)
    for j in tl.static_range(TOPK):
        best = tl.max(tl.where(left != 0, x, float("-inf")), 0)
        # Where all that is left is -inf, the lowest of it is taken.
        place = tl.min(tl.where((left != 0) & (x == best), e, BLOCK), 0)
        share = tl.exp(best - top)
        tl.store(experts + row * TOPK + j, place)
        tl.store(weights + row * TOPK + j, share)
        total += share
        left = tl.where(e == place, 0, left)
    tl.store(shared + row, sigmoid(tl.load(logits + row * (E + 1) + E)))
    tl.debug_barrier()  # the loads below see what was stored
    j = tl.arange(0, 16)
    at = weights + row * TOPK + j
    tl.store(at, tl.load(at, mask=j < TOPK, other=0.0) / total, mask=j < TOPK)
