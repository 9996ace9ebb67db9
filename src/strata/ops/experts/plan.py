"""The plan kernel: from each row's chosen experts to a list of distinct experts, on the device, in one program.

Every product of a layer's experts reads this list, so a captured graph serves whatever the router chooses.
"""

import triton
import triton.language as tl

from strata.ops.dependent import release, wait


@triton.jit
def write_plan(
    ids, number, valid, slot_of, experts, slots, counts, pairs, totals, PAIRS, T, E, shared,
    P: tl.constexpr, M: tl.constexpr, DISTINCT: tl.constexpr,
):  # fmt: skip
    """The plan of pairs in registers; `plan_kernel` says what it stores.

    Args:
        ids: experts, int32 [P].
        number: of the pair, rising among those that are valid, int32 [P].
        valid: there is such a pair.
        DISTINCT: no expert appears twice.
    """
    p = tl.arange(0, P)
    slot = tl.load(slot_of + ids, mask=valid, other=-1)
    if DISTINCT:
        place = tl.zeros([P], tl.int32)
        count = place + 1
    else:
        ids = tl.where(valid, ids, -1)
        same = ids[:, None] == ids[None, :]
        before = p[:, None] < p[None, :]
        met = tl.sum(tl.where(same, tl.where(before, 17, 1), 0), 0)
        count, place = met & 15, met >> 4  # of the expert's pairs, and of those before this one
        first = tl.min(tl.where(same, p[:, None], P), 0)
    resident = slot >= 0
    lead = valid & (place == 0)
    one = tl.where(lead, tl.where(resident, 1, 65536), 0)  # both counts in one number
    behind = tl.cumsum(one, 0) - one
    total = tl.sum(one, 0)
    entry = tl.where(resident, behind & 65535, M - 1 - (behind >> 16))
    tl.store(experts + entry, ids, mask=lead)
    tl.store(slots + entry, slot, mask=lead)
    tl.store(counts + entry, count, mask=lead)
    if not DISTINCT:
        entry = tl.gather(entry, first, 0)
    tl.store(pairs + entry * 8 + place, number, mask=valid)
    found = total & 65535
    if shared >= 0:
        tl.store(experts + found, E)
        tl.store(slots + found, shared)
        tl.store(counts + found, T)
        eight = tl.arange(0, 8)
        tl.store(pairs + found * 8 + eight, PAIRS + eight, mask=eight < T)
        tl.store(totals, found + 1)
    else:
        tl.store(totals, found)
    tl.store(totals + 1, total >> 16)


@triton.jit(do_not_specialize=["PAIRS", "T", "E", "shared"])
def plan_kernel(
    ids, slot_of, experts, slots, counts, pairs, totals, PAIRS, T, E, shared, M: tl.constexpr, PDL: tl.constexpr
):
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
    release(PDL)
    wait(PDL)
    i = tl.arange(0, M)
    chosen = tl.load(ids + i, mask=i < PAIRS, other=0)
    write_plan(
        chosen, i, i < PAIRS, slot_of, experts, slots, counts, pairs, totals, PAIRS, T, E, shared, M, M, DISTINCT=False
    )
