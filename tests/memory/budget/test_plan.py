"""Plans, for any model and machine: within the budget, adding up, never worse for more, refused only if they must."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.memory.budget import DoesNotFitError, ExpertLayer, Machine, Plan, Sizes, Wishes, least, plan
from strata.memory.budget.advice import changes
from strata.memory.budget.plan import Arena, Table
from strata.memory.slots import SlotCache
from support.machines import GB, cases, released

MANY = settings(max_examples=100, deadline=None)


def made(machine: Machine, found: Sizes, wanted: Wishes) -> Plan | None:
    try:
        return plan(machine, found, wanted)
    except DoesNotFitError:
        return None


@MANY
@given(cases(least=0))
def test_no_budget_is_exceeded_and_everything_adds_up(case) -> None:
    machine, found, wanted = case
    one = plan(machine, found, wanted)
    accounts = [one.ram] if one.vram is None else [one.ram, one.vram]
    for account in accounts:
        assert account.used + account.free == account.budget
        assert account.free >= 0
        assert all(part.nbytes > 0 for part in account.parts)
    for kind in one.classes:
        assert kind.in_vram + kind.in_ram + kind.on_ssd == kind.experts
        assert min(kind.in_vram, kind.in_ram, kind.on_ssd) >= 0
    assert sum(kind.experts for kind in one.classes) == found.experts
    assert sorted(i for kind in one.classes for i in kind.layers) == list(range(len(found.layers)))
    if one.vram is None:
        assert one.slots == 0
        left_out = 0 if wanted.drafts and found.draft else found.draft_stored
        assert one.ram.bytes_of(least.DENSE) == found.stored - found.expert_bytes - left_out
        if one.arena is Arena.PART:
            held = sum(k.in_ram * k.held for k in one.classes) + found.slack
            assert all(k.in_ram >= min(k.experts, least.HELD) for k in one.classes), "a row's experts, of every size"
        else:
            held = found.expert_bytes
        assert one.ram.bytes_of(least.EXPERTS) == held
        away = sum(k.on_ssd * k.stored for k in one.classes)
        assert sum(part.nbytes for part in one.ssd if part.name == least.EXPERTS) == away
        assert one.ram.bytes_of(least.TABLE) == (found.table if wanted.table == "ram" else 0)
        return
    assert one.vram.bytes_of(least.EXPERTS) == one.expert_vram == sum(k.in_vram * k.slot for k in one.classes)
    assert one.expert_vram >= least.fewest_slots(found)
    transit = 0 if one.slots == found.experts else found.transit
    assert one.vram.bytes_of(least.TRANSIT) == transit, "whatever brings experts to slots is there if it is needed"
    assert one.vram.bytes_of(least.KEPT) == wanted.headroom
    assert one.vram.bytes_of(least.DENSE) == found.dense
    assert one.vram.bytes_of(least.DRAFT) == (found.draft if wanted.drafts else 0)
    in_ram = sum(k.in_ram * k.held for k in one.classes)
    assert one.ram.bytes_of(least.EXPERTS) in (
        {found.expert_bytes} if one.arena is Arena.ALL else {in_ram, in_ram + found.slack}
    )
    assert sum(part.nbytes for part in one.ssd if part.name == least.EXPERTS) == sum(
        k.on_ssd * k.stored for k in one.classes
    )
    assert (one.arena is Arena.NONE) == (one.slots == found.experts)
    assert (one.arena is Arena.PART) == any(k.on_ssd for k in one.classes)
    where = [found.table and place for place in (
        one.vram.bytes_of(least.TABLE), one.ram.bytes_of(least.TABLE),
        sum(part.nbytes for part in one.ssd if part.name == least.TABLE))]  # fmt: skip
    assert sum(where) == found.table
    assert (one.table is Table.NONE) == (not found.table)
    if wanted.table and found.table:
        assert one.table.value == wanted.table


@MANY
@given(cases(least=0))
def test_a_conversation_may_have_the_whole_context_and_all_no_more_than_their_own(case) -> None:
    machine, found, wanted = case
    one = plan(machine, found, wanted)
    context = wanted.context or found.context
    page = found.cells.page
    assert context <= one.cells <= wanted.conversations * context + wanted.conversations * page
    assert found.work.least_rows <= one.rows <= found.work.most_rows or one.vram is None


@MANY
@given(cases(least=0), st.integers(0, 40_000))
def test_more_vram_never_holds_fewer_experts_nor_reads_more_from_the_ssd(case, more) -> None:
    machine, found, wanted = case
    assume(machine.vram)
    one = plan(machine, found, wanted)
    larger = plan(replace(machine, vram=machine.vram + more), found, wanted)
    for before, after in zip(one.classes, larger.classes, strict=True):
        assert after.in_vram >= before.in_vram
        assert after.on_ssd <= before.on_ssd
    assert sum(part.nbytes for part in larger.ssd) <= sum(part.nbytes for part in one.ssd)
    assert larger.rows >= one.rows or larger.resident, "then shorter passes do"


@MANY
@given(cases(least=0), st.integers(0, 40_000))
def test_more_ram_never_leaves_more_on_the_ssd(case, more) -> None:
    machine, found, wanted = case
    one = plan(machine, found, wanted)
    larger = plan(replace(machine, ram=machine.ram + more), found, wanted)
    assert sum(part.nbytes for part in larger.ssd) <= sum(part.nbytes for part in one.ssd)
    assert [k.in_vram for k in larger.classes] == [k.in_vram for k in one.classes], "VRAM is no business of the RAM"


@MANY
@given(cases(least=0), st.data())
def test_a_shorter_context_never_holds_fewer_experts(case, data) -> None:
    machine, found, wanted = case
    one = plan(machine, found, wanted)
    shorter = data.draw(st.integers(1, one.context))
    other = plan(machine, found, replace(wanted, context=shorter))
    assert all(b.in_vram >= a.in_vram for a, b in zip(one.classes, other.classes, strict=True))


@MANY
@given(cases())
def test_it_is_refused_exactly_when_the_least_does_not_fit(case) -> None:
    machine, found, wanted = case
    chosen = least.settle(machine, found, wanted)
    fits = sum(p.nbytes for p in least.least_ram(machine, found, wanted, chosen)) <= machine.ram
    if machine.vram:
        fits &= sum(p.nbytes for p in least.least_vram(machine, found, wanted, chosen)) <= machine.vram
    if machine.disk is not None:
        fits &= found.files <= machine.disk
    assert (made(machine, found, wanted) is not None) == fits


@MANY
@given(cases())
def test_what_is_advised_helps_and_nothing_smaller_would(case) -> None:
    machine, found, wanted = case
    assume(made(machine, found, wanted) is None)
    for flags, changed in changes(machine, found, wanted):
        assert made(machine, found, changed) is not None, flags
        assert changed != wanted
        if flags.startswith("--context "):
            longer = (changed.context or 0) + 1024
            before = wanted.context or found.context
            assert longer >= before or made(machine, found, replace(changed, context=longer)) is None
        if flags.startswith("--conversations ") and " " not in flags.removeprefix("--conversations "):
            more = changed.conversations + 1
            assert more == wanted.conversations or made(machine, found, replace(changed, conversations=more)) is None


@MANY
@given(cases())
def test_a_refusal_names_numbers_that_lack(case) -> None:
    machine, found, wanted = case
    try:
        plan(machine, found, wanted)
    except DoesNotFitError as error:
        caught = error
    else:
        return
    short = caught.shortage
    assert short.need > short.free
    assert short.need == sum(part.nbytes for part in short.parts)
    assert caught.advice


def test_an_ordinary_pc() -> None:
    one = plan(Machine(12 * GB, 64 * GB), released(), Wishes(context=32768))
    assert one.arena is Arena.ALL
    assert one.table is Table.SSD
    assert 0.05 < one.share < 0.12, "limits.md says 3,000 slots or 12% beside less context"
    assert one.vram is not None
    assert one.vram.free < max(kind.slot for kind in one.classes), "what is left goes to experts"


def test_the_slot_cache_begins_with_what_is_planned() -> None:
    layers = [replace(layer, slot=layer.slot * (1 + i % 2)) for i, layer in enumerate(released().layers)]
    one = plan(Machine(24 * GB, 64 * GB), replace(released(), layers=tuple(layers)), Wishes(context=32768))
    cache = SlotCache(*one.slot_cache)
    assert list(cache.sizes) == [layers[0].slot, layers[1].slot]
    assert list(cache.classes) == [0, 1] * 24
    assert sum(one.slot_cache[2]) == one.slots
    assert one.sentences[0].startswith(f"{one.slots:,} of 24,576 experts")


def test_all_in_vram() -> None:
    one = plan(Machine(141 * GB, 256 * GB), released(), Wishes(conversations=8))
    assert (one.resident, one.arena, one.table) == (True, Arena.NONE, Table.VRAM)
    assert one.cells > one.context
    assert 1984 <= one.rows <= 2048, "longer passes only pay where experts have to come for each"


def test_a_single_conversation_has_a_place_for_a_window_launched_ahead() -> None:
    """Where windows are launched ahead at all, and where its bytes are left over."""

    sizes, roomy = released(), Wishes(context=32768, conversations=1, drafts=False)
    one = plan(Machine(141 * GB, 256 * GB), sizes, roomy)
    assert (one.resident, one.ahead, one.table) == (True, True, Table.VRAM)
    for other in (replace(roomy, conversations=2), replace(roomy, drafts=True)):
        assert not plan(Machine(141 * GB, 256 * GB), sizes, other).ahead
    assert not plan(Machine(24 * GB, 256 * GB), sizes, roomy).ahead
    chosen = least.settle(Machine(141 * GB, 256 * GB), sizes, roomy)
    assert one.vram is not None
    assert one.vram.bytes_of(least.TALK) == least.talk_bytes(sizes, chosen, 1, one.cells) + sizes.cells.spare
    assert 100e6 < sizes.cells.spare < 120e6
    low, high = 24 * GB, 141 * GB  # the least that holds all experts
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if plan(Machine(middle, 256 * GB), sizes, roomy).resident else (middle, high)
    assert not plan(Machine(high, 256 * GB), sizes, roomy).ahead
    longer = sizes.work.usual - sizes.work.short  # passes come first
    assert plan(Machine(high + (sizes.cells.spare + longer) * 66 // 64, 256 * GB), sizes, roomy).ahead


def test_passes_are_long_where_experts_come_and_memory_allows() -> None:
    """And the plan says so."""
    plans = [plan(Machine(vram * GB, 128 * GB), released(), Wishes(context=8192)) for vram in (8, 9, 12, 24)]
    rows = [one.rows for one in plans]
    assert rows == sorted(rows)
    assert rows[0] < rows[1] < rows[2] == rows[3] == 8192
    assert [one.short for one in plans[1:]] == [1024] * 3
    assert [one.ring for one in plans] == [False, False, True, True]
    small, _, one, larger = plans
    assert one.vram is not None
    work = released().work
    assert one.lent == larger.lent == work.most - work.short + released().ring
    assert small.lent == small.expert_vram // 2, "no more than half of the slots"
    (passes,) = [part for part in one.vram.parts if part.name == least.PASS]
    assert passes.note == "1,024 tokens at a time, longer ones borrow"
    assert any(
        text == "A prompt of more than 1,024 tokens borrows up to 1.38 GB from experts while it is read (765 slots), "
        "for passes of up to 8,192 tokens; they come back after it, if the GPU has a driver with virtual memory, as "
        "nearly all are."
        for text in one.sentences
    )
    asked = plan(Machine(12 * GB, 128 * GB, lends=True), released(), Wishes(context=8192))
    assert replace(asked, machine=one.machine) == one
    assert any(text.endswith("they come back after it.") for text in asked.sentences)


def test_where_slots_cannot_be_taken_away_passes_have_their_own_memory() -> None:
    """Longer ones for some of the slots, of which a large card gives few; and the plan says so."""
    work, wanted = released().work, Wishes(context=32768)

    def planned(vram: int, *, lends: bool) -> Plan:
        return plan(Machine(vram * GB, 64 * GB, lends=lends), released(), wanted)

    plans = [planned(vram, lends=False) for vram in (8, 9, 12, 24)]
    rows = [one.rows for one in plans]
    assert rows == sorted(rows)
    assert 512 < rows[0] < 1024 < rows[1] < rows[2] < rows[3] == 8192
    for one in plans:
        assert (one.short, one.lent, one.ring) == (one.rows, 0, False)
        assert one.vram is not None
        (passes,) = [part for part in one.vram.parts if part.name == least.PASS]
        assert passes.note == f"{one.rows:,} tokens at a time"
        assert one.rows == work.rows(passes.nbytes)
    assert 0.92 < plans[3].slots / planned(24, lends=True).slots < 0.94
    said = "The driver of this GPU has no virtual memory, so a long prompt cannot borrow from experts: "
    assert said + "passes of up to 8,192 tokens have 1.37 GB all the time." in plans[3].sentences
    whole = [planned(141, lends=lends) for lends in (False, True)]
    assert replace(whole[0], machine=whole[1].machine) == whole[1], "nothing is borrowed where all experts are there"
    assert not any("borrow" in text for text in whole[0].sentences)


@MANY
@given(cases(least=0))
def test_what_a_long_prompt_borrows_is_there_to_be_had(case) -> None:
    """At the worst moment the budget holds: slots give as many bytes as passes and ring take."""
    machine, found, wanted = case
    one = plan(machine, found, wanted)
    work = found.work
    if one.vram is None or one.resident or machine.lends is False:
        assert (one.lent, one.ring) == (0, False)
        assert one.short == one.rows or one.vram is None
        return
    ring = found.ring if one.ring else 0
    assert 0 <= one.lent <= one.expert_vram // 2
    passes = one.vram.bytes_of(least.PASS) + one.lent - ring
    assert passes <= max(work.most, one.vram.bytes_of(least.PASS))
    rows, more = one.rows - work.least_rows, work.most_rows - work.least_rows
    assert rows * (work.most - work.least) <= more * (passes - work.least), "a row has its share of the bytes"
    assert work.least_rows <= one.short <= one.rows
    assert one.ring <= (passes >= work.most), "the ring is the last to be had"


@MANY
@given(cases(least=0), st.integers(0, 40_000))
def test_more_vram_never_lends_less(case, more) -> None:
    machine, found, wanted = case
    assume(machine.vram)
    one = plan(machine, found, wanted)
    larger = plan(replace(machine, vram=machine.vram + more), found, wanted)
    assert larger.rows >= one.rows or larger.resident
    assert larger.ring >= one.ring or larger.resident


def test_ram_that_holds_only_what_vram_does_not() -> None:
    one = plan(Machine(24 * GB, 40 * GB), released(), Wishes(context=32768))
    assert one.arena is Arena.COMPLEMENT
    assert one.ram.bytes_of(least.EXPERTS) < released().expert_bytes


def test_ram_that_is_too_small_leaves_the_last_on_the_ssd() -> None:
    one = plan(Machine(12 * GB, 24 * GB), released(), Wishes(context=32768))
    assert one.arena is Arena.PART
    assert 0 < sum(kind.on_ssd for kind in one.classes) < 24576
    assert one.ram.free < max(kind.stored for kind in one.classes)


def test_without_a_gpu_what_ram_cannot_hold_is_read_from_the_ssd() -> None:
    one = plan(Machine(0, 32 * GB), released(), Wishes(context=32768))
    assert (one.arena, one.vram) == (Arena.PART, None)
    assert 0.4 < sum(kind.in_ram for kind in one.classes) / 24576 < 0.6
    assert plan(Machine(0, 64 * GB), released(), Wishes(context=32768)).arena is Arena.ALL


def test_the_flags_to_change_are_named() -> None:
    with pytest.raises(DoesNotFitError) as caught:
        plan(Machine(10 * GB, 64 * GB), released(), Wishes(context=131072))
    text = str(caught.value)
    assert "Released does not fit: 11." in text
    assert "of VRAM are needed, 10.0 GB are there: 4.00 GB for dense weights" in text
    assert "--context " in text
    assert "--kv q8" in text
    assert text.endswith("of free VRAM")


def test_where_one_change_is_not_enough_all_are_given_together() -> None:
    with pytest.raises(DoesNotFitError) as caught:
        plan(Machine(6_350_000_000, 64 * GB), released(), Wishes(conversations=8))
    assert caught.value.advice[0].startswith("--kv q8 --conversations 1 --drafts 0 --context ")


def test_a_container_that_is_too_small_says_so() -> None:
    with pytest.raises(DoesNotFitError, match=r"of RAM \(limit of this container or service: 5\.00 GB\) are needed"):
        plan(Machine(0, 5 * GB, limit=5 * GB), released(), Wishes(context=4096))


def test_too_small_a_disk() -> None:
    with pytest.raises(
        DoesNotFitError, match=r"76\.0 GB of the disk are needed, 40\.0 GB are there.*free 36\.0 GB there"
    ):
        plan(Machine(12 * GB, 64 * GB, disk=40 * GB), replace(released(), files=76 * GB), Wishes(context=8192))


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Wishes(context=300_000), "a context of 300000 tokens is more than the 262144 of Released; set --context to"),
        (Wishes(kv="q3"), "kept as bf16, q8 on a GPU, not as q3"),
        (Wishes(conversations=0), "at least one conversation"),
    ],
)
def test_wishes_that_make_no_sense(wanted, why) -> None:
    with pytest.raises(RequestError, match=why):
        plan(Machine(24 * GB, 64 * GB), released(), wanted)


def test_the_same_share_of_every_layer_is_in_vram() -> None:
    layers = [replace(layer, slot=layer.slot * (1 + (i < 5) + (i < 20))) for i, layer in enumerate(released().layers)]
    one = plan(Machine(24 * GB, 128 * GB), replace(released(), layers=tuple(layers)), Wishes(context=32768))
    shares = [kind.in_vram / kind.experts for kind in one.classes]
    assert max(shares) - min(shares) < 1e-3
    assert len(shares) == 3


def test_where_slots_take_no_more_than_what_would_bring_experts_all_are_there_whatever_is_wished() -> None:
    small = replace(released(), layers=(ExpertLayer(10, 100, 90),) * 4, transit=4000)
    for wanted in (Wishes(context=1024), Wishes(context=1024, experts=10)):
        one = plan(Machine(12 * GB, 64 * GB), small, wanted)
        assert one.resident
        assert one.vram is not None
        assert one.vram.bytes_of(least.TRANSIT) == 0
    larger = replace(small, transit=3999)
    one = plan(Machine(12 * GB, 64 * GB), larger, Wishes(context=1024, experts=1000))
    assert (one.slots, one.resident) == (10, False)
    assert one.vram is not None
    assert one.vram.bytes_of(least.TRANSIT) == 3999
