"""Estimates of speed: the table of limits they are made after, bounds that hold, and words."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from strata.memory.budget import Machine, Rates, Wishes, estimate, plan
from strata.memory.budget.fill import SlotClass
from strata.memory.budget.machine import card_for, known_card
from strata.memory.budget.speed import REACHED, _window, hits
from strata.memory.budget.words import assumptions, sentences, speeds
from support.machines import GB, cases, released

RTX_3090 = Rates(936, 71, 25, 40, 3, "RTX 3090", ())


@pytest.mark.parametrize(
    ("share", "low", "high"),
    [(0, 0, 0), (0.12, 0.56, 0.62), (0.17, 0.61, 0.68), (0.32, 0.83, 0.90), (1, 1, 1), (0.06, 0.28, 0.31)],
)
def test_hits_are_those_that_were_seen(share, low, high) -> None:
    assert hits(share) == (pytest.approx(low), pytest.approx(high))


@pytest.mark.parametrize(("hit", "plain", "drafted"), [(0.0, 40, 33), (0.5, 68, 62), (0.8, 119, 127), (0.9, 159, 197)])
def test_the_published_table_comes_out(hit, plain, drafted) -> None:
    """RTX 3090, misses on a CPU of 40 GB/s, 2.85 bits: bytes alone, without the time of kernels' starts.

    The released model's bytes of one token, and no link; 32K tokens of context are in the 59 MB of keys and values.
    """
    stored = 840_000_000 // 480
    model = replace(released(), layers=(replace(released().layers[0], stored=stored),) * 48)
    reads = replace(
        model.reads, dense=3_635_000_000, state=226_000_000, cell=1007, chosen=26_000_000, draft=320_000_000
    )
    made = plan(
        Machine(24 * GB, 64 * GB, rates=replace(RTX_3090, link=0.0)), replace(model, reads=reads), Wishes(context=32768)
    )
    for rows, tokens, expected in ((1, 1, plain), (4, 2.3, drafted)):
        parts = _window(made, rows, hit)
        seconds = sum(time for name, time in parts.items() if name != "starts of kernels")
        assert tokens / seconds == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("machine", [Machine(12 * GB, 24 * GB), Machine(0, 24 * GB)], ids=["gpu", "cpu"])
def test_every_visit_is_served_somewhere(machine) -> None:
    made = plan(machine, released(), Wishes(context=32768))
    rates, hit = machine.rates, 0.3 if machine.vram else 0.0
    parts = _window(made, 1, hit)
    from_ram = parts["experts in RAM"] * 1e9 * (rates.cpu + (rates.link if machine.vram else 0))
    from_ssd = parts["experts on the SSD"] * 1e9 * rates.disk
    visits = 10 * sum(layer.stored for layer in released().layers)
    assert min(from_ram, from_ssd) > 0.05 * visits
    assert from_ram + from_ssd == pytest.approx(visits * (1 - hit))


def test_starts_of_kernels_take_as_long_as_they_were_measured_to() -> None:
    usual, slow = (plan(Machine(24 * GB, 64 * GB, rates=rates), released(), Wishes())
                   for rates in (Rates(), Rates(start=3.6)))  # fmt: skip
    assert _window(slow, 1, 0.5)["starts of kernels"] == 2 * _window(usual, 1, 0.5)["starts of kernels"]


def test_an_h200_that_was_measured() -> None:
    """294 tokens/s plain were measured there with all in VRAM (bench/results/h200-decode.json)."""
    made = plan(Machine(141 * GB, 128 * GB, rates=Rates(4300, 989, 52, 40, 3, "H200", ())), released(), Wishes())
    found = estimate(made)
    assert found is not None
    assert found.plain[0] == found.plain[1] == pytest.approx(294, rel=0.1)
    assert found.prompt_bound == "computing"


@settings(max_examples=100, deadline=None)
@given(cases(least=0))
def test_estimates_stay_below_their_bound(case) -> None:
    made = plan(*case)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("strata.memory.budget.speed.SMALL", 0)
        found = estimate(made)
        told = sentences(made)
    if found is None:
        assert case[1].reads is None
        return
    low, high = found.hits
    assert 0 <= low <= high <= 1
    assert 0 < max(found.best) <= found.bound * max(REACHED) * (1 + 1e-9)
    assert found.drafted is None or made.drafts
    assert speeds(found)
    assert all(text.endswith(".") for text in told)


def test_more_of_everything_is_never_slower() -> None:
    def speed(vram: int, ram: int = 64, rates: Rates = RTX_3090) -> float:
        made = plan(Machine(vram * GB, ram * GB, rates=rates), released(), Wishes(context=32768))
        found = estimate(made)
        assert found is not None
        return found.best[0]

    by_vram = [speed(vram) for vram in (9, 12, 16, 24, 32, 48, 80)]
    assert by_vram == sorted(by_vram)
    by_ram = [speed(12, ram) for ram in (16, 24, 32, 48, 64, 128)]
    assert by_ram == sorted(by_ram)
    assert by_ram[0] < by_ram[-1] / 3, "experts on the SSD are slow"
    assert speed(12, rates=replace(RTX_3090, cpu=70.0)) > speed(12)
    assert speed(12, rates=replace(RTX_3090, link=52.0)) > speed(12)


def test_long_prompts_are_bound_by_what_is_slowest() -> None:
    def bound(machine: Machine) -> tuple[float, str]:
        found = estimate(plan(machine, released(), Wishes(context=32768)))
        assert found is not None
        assert found.prompt is not None
        return found.prompt, found.prompt_bound

    assert bound(Machine(8 * GB, 64 * GB))[1] == "the link", "too few slots to borrow from"
    assert bound(Machine(12 * GB, 64 * GB))[1] == "computing"
    assert bound(Machine(9 * GB, 24 * GB))[1] == "the SSD"
    assert bound(Machine(141 * GB, 64 * GB))[1] == "computing"
    borrowed, own = (bound(Machine(9 * GB, 64 * GB, lends=lends))[0] for lends in (True, False))
    assert own < borrowed / 2, "by the passes that there will be, not by those that slots would lend for"


def test_cards_by_name_and_by_size() -> None:
    assert known_card("NVIDIA GeForce RTX 3090") == "RTX 3090"
    assert known_card("rtx 5070") == "RTX 5070"
    assert known_card("NVIDIA GeForce RTX 5070 Ti") is None, "another card"
    assert known_card("NVIDIA H200") == "H200"
    assert [card_for(vram * GB) for vram in (8, 12, 24, 32, 80)] == ["RTX 5070"] * 2 + ["RTX 3090"] * 2 + ["H200"]


def test_a_plan_in_words() -> None:
    made = plan(Machine(12 * GB, 32 * GB, rates=RTX_3090), released(), Wishes(context=131072))
    text = " ".join(sentences(made))
    assert "of 24,576 experts (" in text
    assert "RAM is too small for " in text
    assert "The n-gram table (28.8 GB) stays on the SSD: a token reads 1.44 kB of it" in text
    assert "With --context 32K there would be " in text
    assert "With --kv q8 there would be " in text
    assert "GB of RAM no expert would be read from the SSD" in text
    assert "Eight (--conversations 8) take " in text or "eight would not fit" in text
    assert assumptions(made).startswith("given: RTX 3090: 936 GB/s and 71 TFLOPS, link 25 GB/s")
    rows = dict(speeds(estimate(made)))
    assert "waiting mostly for experts that come from the SSD" in rows["writing"]
    assert rows["reading"].endswith("bound by the SSD")


def test_a_cpu_in_words() -> None:
    made = plan(Machine(0, 64 * GB), released(), Wishes(context=32768))
    assert sentences(made)[0].startswith("There is no GPU")
    assert [what for what, _ in speeds(estimate(made))] == ["writing", "starting"]
    assert assumptions(made).startswith("assumed: expert kernels of the CPU 40 GB/s")
    assert isinstance(made.classes[0], SlotClass)
