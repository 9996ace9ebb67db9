"""A plan meets a card: scratch memory takes another size than assumed, or memory is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.memory.budget import DoesNotFitError, Machine, Plan, Wishes, least, measured, plan, retry
from support.machines import GB, cases, released

MANY = settings(max_examples=100, deadline=None)


def free_with(one: Plan, work: int) -> int:
    """What the card says is free, where scratch memory takes so much."""
    assert one.vram is not None
    others = sum(part.nbytes for part in one.vram.parts if part.name not in {least.WORK, least.KEPT})
    return one.vram.budget - others - work


@MANY
@given(cases(least=0), st.integers(0, 3000))
def test_what_was_to_stay_free_stays_free(case, work) -> None:
    machine, found, wanted = case
    one = plan(machine, found, wanted)
    if one.vram is None:
        assert measured(one, 0) is one
        return
    try:
        other = measured(one, free_with(one, work))
    except DoesNotFitError:
        assert work > one.vram.bytes_of(least.WORK), "less than assumed always fits"
        return
    assert free_with(other, work) >= wanted.headroom
    assert measured(other, free_with(other, work)) == other, "measured again, nothing changes"


def test_more_than_assumed_costs_experts_and_less_brings_some() -> None:
    one = plan(Machine(12 * GB, 64 * GB), released(), Wishes(context=32768))
    size = one.classes[0].slot
    assert one.vram is not None
    as_planned = one.vram.free + one.vram.bytes_of(least.KEPT)
    assert measured(one, as_planned).slots == one.slots
    fewer = measured(one, as_planned - 100 * size)
    assert 60 <= one.slots - fewer.slots <= 101, "prompt passes give their share"
    assert measured(one, as_planned + 100 * size).slots > one.slots
    with pytest.raises(DoesNotFitError, match="GB for windows and graphs"):
        measured(one, as_planned - 5 * GB)


@MANY
@given(cases(least=0))
def test_n01_refused_memory_leads_down_to_the_fewest_slots_and_then_to_an_error(case) -> None:
    machine, found, wanted = case
    one = plan(machine, found, wanted)

    def experts(made: Plan) -> int:
        return made.expert_vram if made.vram else made.ram.bytes_of(least.EXPERTS)

    for _ in range(24):
        try:
            smaller = retry(one)
        except DoesNotFitError:
            every = max((kind.held for kind in one.classes), default=0)  # what is not a whole expert stays
            fewest = least.fewest_slots(found) if one.vram else least.fewest_stored(found)
            assert experts(one) <= fewest + every
            return
        assert experts(smaller) < experts(one)
        assert smaller.cells == one.cells or one.resident or not one.vram
        one = smaller
    pytest.fail("it never ends")


def test_n01_what_is_said_when_nothing_can_be_had() -> None:
    one = plan(Machine(12 * GB, 64 * GB), released(), Wishes(context=32768))
    sizes = [one.expert_vram]
    while one.expert_vram > least.fewest_slots(one.sizes):
        one = retry(one)
        sizes.append(one.expert_vram)
    with pytest.raises(DoesNotFitError) as caught:
        retry(one)
    assert len(sizes) < 16
    assert sizes[1] == pytest.approx(sizes[0] * 3 / 4, rel=1e-3)
    text = str(caught.value)
    assert text.startswith("Released does not fit after all: 12.0 GB of VRAM seemed to be free, but not even ")
    assert "a shorter --context, or --drafts 0, or closing other programs there" in text
