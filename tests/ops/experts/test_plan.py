"""The plan kernel against a dictionary."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.ops.experts import triton as experts
from strata.ops.experts.slots import SlotLayout, Slots

LAYOUT = SlotLayout("Q8_0", "Q8_0", "Q8_0", 64, 64)


def _grouped(ids, slot_of, shared):
    """What the plan has to say: two dictionaries, expert to pairs, in order of first appearance."""
    resident, missing = {}, {}
    for pair, expert in enumerate(ids.reshape(-1).tolist()):
        (resident if slot_of[expert] >= 0 else missing).setdefault(expert, []).append(pair)
    if shared >= 0:
        resident[len(slot_of)] = list(range(ids.size, ids.size + len(ids)))
    return resident, missing


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 8), st.integers(1, 10), st.integers(0, 2**32), st.booleans(), st.sampled_from([0.0, 0.4, 1.0]))
def test_plan_is_a_grouping(rows, topk, seed, shared, share_missing):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(topk, 3 * topk + 2))
    ids = np.stack([rng.permutation(count)[:topk] for _ in range(rows)]).astype(np.int32)
    slot_of = np.where(rng.random(count) < share_missing, -1, rng.permutation(count)).astype(np.int32)
    slots = Slots(LAYOUT, torch.zeros(0), torch.from_numpy(slot_of), 77 if shared else -1)
    plan = experts.empty_plan(rows, topk, slots)
    for field in (plan.experts, plan.slots, plan.counts, plan.pairs, plan.totals):
        field.fill_(-999)
    experts.plan(torch.from_numpy(ids), slots, plan)
    resident, missing = _grouped(ids, slot_of, slots.shared)
    assert plan.totals.tolist() == [len(resident), len(missing)]
    last = len(plan.experts) - 1
    for step, groups in ((1, resident), (-1, missing)):
        for i, (expert, pairs) in enumerate(groups.items()):
            entry = i if step == 1 else last - i
            assert plan.experts[entry] == expert
            assert plan.slots[entry] == (slots.shared if expert == count else slot_of[expert])
            assert plan.counts[entry] == len(pairs)
            assert plan.pairs[entry, : len(pairs)].tolist() == pairs
            assert (plan.pairs[entry, len(pairs) :] == -999).all()
    for entry in range(len(resident), len(plan.experts) - len(missing)):
        assert plan.experts[entry] == plan.slots[entry] == plan.counts[entry] == -999
