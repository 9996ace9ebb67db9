"""The plan kernel: from each row's chosen experts to a list of distinct experts, on the device, in one program.

Every product of a layer's experts reads this list, so a captured graph serves whatever the router chooses.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["PAIRS", "T", "E", "shared"])
def plan_kernel(ids, slot_of, experts, slots, counts, pairs, totals, PAIRS, T, E, shared, M: tl.constexpr):
    """Distinct experts in order of first appearance: resident ones from the front of the list, missing from its end.

    Pairs are ``(row, place in the router's order)``, numbered row by row. Entries of M between
    the two hold nothing and are not written.

    Args:
        ids: chosen experts, ``int32 [T, topk]``.
        slot_of: slot of each expert, ``int32 [E]``, negative if it has none.
        experts: out, ``int32 [M]``.
        slots: out, ``int32 [M]``.
        counts: out, how many pairs each expert has, ``int32 [M]``.
        pairs: out, their numbers in rising order, ``int32 [M, 8]``.
        totals: out, how many experts are resident and how many missing, ``int32 [2]``.
        PAIRS: T * topk.
        T: rows of the window.
        E: number under which the shared expert appears in `experts`.
        shared: slot of the shared expert, taken by pairs PAIRS to PAIRS + T - 1, or negative for none.
        M: a power of two, at least PAIRS + 1.
    """
    i, j = tl.arange(0, M)[:, None], tl.arange(0, M)[None, :]
    id_i = tl.load(ids + i, mask=i < PAIRS, other=-1)
    id_j = tl.load(ids + j, mask=j < PAIRS, other=-1)
    same = ((id_i == id_j) & (i < PAIRS) & (j < PAIRS)).to(tl.int32)
    place = tl.sum(same * (j < i).to(tl.int32), 1)  # of the pair among its expert's
    count = tl.sum(same, 1)
    first = tl.min(tl.where(same > 0, j, M), 1)  # the pair that named the expert first
    leads = ((tl.sum(same * (i < j).to(tl.int32), 0) == 0)[None, :] & (j < PAIRS)).to(tl.int32)
    has = (tl.load(slot_of + id_j, mask=j < PAIRS, other=-1) >= 0).to(tl.int32)
    earlier = (j < first[:, None]).to(tl.int32)
    resident = tl.sum(leads * has * earlier, 1)
    missing = tl.sum(leads * (1 - has) * earlier, 1)
    total = tl.sum(tl.sum(leads * has, 1), 0)

    n = tl.arange(0, M)
    valid = n < PAIRS
    expert = tl.load(ids + n, mask=valid, other=0)
    slot = tl.load(slot_of + expert, mask=valid, other=-1)
    row = tl.where(slot >= 0, resident, M - 1 - missing)
    lead = valid & (place == 0)
    tl.store(experts + row, expert, mask=lead)
    tl.store(slots + row, slot, mask=lead)
    tl.store(counts + row, count, mask=lead)
    tl.store(pairs + row * 8 + place, n, mask=valid)
    if shared >= 0:
        tl.store(experts + total, E)
        tl.store(slots + total, shared)
        tl.store(counts + total, T)
        eight = tl.arange(0, 8)
        tl.store(pairs + total * 8 + eight, PAIRS + eight, mask=eight < T)
        tl.store(totals, total + 1)
    else:
        tl.store(totals, total)
    tl.store(totals + 1, tl.sum(tl.sum(leads * (1 - has), 1), 0))
