"""Who begins with what was measured: the split of misses, the depth of drafts, and the estimates of a plan."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.engine.drafting.measured import Measured
from strata.engine.drafting.timings import KEPT, Start, Timings
from strata.experts.misses import Costs, shares
from strata.gguf import open_model
from strata.loading import tiers
from strata.loading.calibration import Machine, Part, Record, Value, here, save
from strata.loading.calibration.use import (
    costs,
    cpu_rate,
    described,
    measured_costs,
    rates,
    start,
    starting_costs,
    subject,
)
from strata.model import load_config, load_weights
from strata.ops.experts.slots import SlotLayout
from strata.ops.tiers import measure
from strata.version import __version__
from support.planned import planned
from support.stored import write_stored

WHEN = "2026-11-30T14:00:00+00:00"
KIND = SlotLayout("IQ3_XXS", "IQ3_XXS", "IQ4_NL", 2560, 640)
TYPES = {"types": "IQ3_XXS/IQ3_XXS/IQ4_NL", "hidden": 2560, "inner": 640}
BEFORE = Costs(52.0, 45.0, 8.0, 6.0)


def value(name: str, median: float, **keys) -> Value:
    return Value(name, median, median, median, 7, tuple(sorted(keys.items()))).check()


def record(*values: Value, about: dict[str, str] | None = None, machine: Machine | None = None) -> Record:
    found = Record(machine or Machine("Abacus 9", 8, 16, 64 << 30), __version__)
    for one in values:
        name = one.name.partition(".")[0]
        found = found.with_part(Part(name, (about or {}).get(name, ""), WHEN, quick=False, values=(one,)))
    return found


def product(name: str, rate: float, threads: int = 8, rows: int = 1) -> Value:
    return value("cpu.product", rate, type=name, rows=rows, threads=threads)


def test_the_cpus_rate_is_that_of_the_files_bytes():
    found = record(product("IQ3_XXS", 20.0), product("Q8_0", 60.0), product("Q8_0", 30.0, rows=4))
    assert cpu_rate(found, {"Q8_0": 5.0}) == 60.0
    assert cpu_rate(found, {"IQ3_XXS": 2.0, "Q8_0": 6.0}) == pytest.approx(8 / (2 / 20 + 6 / 60))
    assert cpu_rate(found, {"IQ3_S": 1.0}) == 20.0, "the nearest in bits a weight"
    assert cpu_rate(found, {"BF16": 1.0}) == 60.0
    assert cpu_rate(found) == pytest.approx(2 / (1 / 20 + 1 / 60))
    assert cpu_rate(record(product("Q8_0", 30.0, threads=1), product("Q8_0", 60.0))) == 60.0, "the most threads"
    assert cpu_rate(record()) is None


def test_rates_are_of_the_disk_and_the_card_that_are_meant():
    found = record(
        value("disk.random", 2.0, bytes=2_176_000, depth=1, direct=True),
        value("disk.random", 3.0, bytes=2_176_000, depth=8, direct=True),
        value("disk.random", 0.2, bytes=4096, depth=8, direct=True),
        value("disk.sequential", 5.0, depth=8, direct=True),
        value("gpu.read", 850.0), value("gpu.products", 60.0), value("gpu.start", 2.5),
        value("link.copy", 24.0, to="gpu"), value("link.copy", 22.0, to="ram"),
        product("Q8_0", 50.0), about={"disk": "/dev/a (ext4)", "gpu": "RTX", "link": "RTX"},
    )  # fmt: skip
    everything = {"vram": 850.0, "tflops": 60.0, "start": 2.5, "link": 24.0, "cpu": 50.0, "disk": 3.0}
    assert rates(found) == everything
    assert rates(found, disk="/dev/a (ext4)", card="RTX") == everything
    assert rates(found, disk="/dev/b (ext4)", card="") == {"cpu": 50.0}
    assert rates(found, card="another") == {"cpu": 50.0, "disk": 3.0}
    assert rates(record(value("disk.sequential", 5.0, depth=8, direct=True))) == {"disk": 5.0}


def test_costs_of_an_expert_follow_from_kernels_and_link():
    whole = value("cpu.expert", 100.0, rows=1, threads=8, **TYPES)
    brought = value("link.expert", 90.0, **TYPES)
    assert costs(record(whole, brought), [KIND], 8, BEFORE) == Costs(100.0, 90.0, 8.0, 6.0)
    assert costs(record(whole), [KIND], 4, BEFORE) == Costs(200.0, 45.0, 8.0, 6.0)
    other = SlotLayout("Q8_0", "Q8_0", "Q8_0", 2560, 640)
    by_types = record(product("Q8_0", 50.0), product("IQ3_XXS", 20.0), product("IQ4_NL", 40.0),
                      value("link.kernel", 20.0, to="gpu"))  # fmt: skip
    nbytes = 3 * 640 * 2560 * 34 // 32
    expected = costs(by_types, [other], 8, BEFORE)
    assert (expected.host, expected.link) == pytest.approx((nbytes / 50e3, nbytes / 20e3))
    small = 2 * 640 * 980, 2560 * 360
    (both, one) = (costs(by_types, kinds, 8, BEFORE) for kinds in ([KIND, other], [KIND]))
    assert one.host == pytest.approx(small[0] / 20e3 + small[1] / 40e3)
    assert both.host == pytest.approx((expected.host + one.host) / 2), "layers count alike"
    assert costs(record(), [KIND], 8, BEFORE) is None


def tier_values(**numbers: float) -> list[Value]:
    keys = {"experts": described([KIND, KIND]), "threads": 7}
    return [value(f"tier.{name}", number, **keys) for name, number in numbers.items()]


def test_costs_measured_in_just_such_tiers_are_taken_as_they_are():
    all_four = tier_values(host=80.0, host_first=1.0, link=70.0, link_first=0.0)
    found = record(*all_four)
    around = Costs(80.0, 70.0, 1.0 + measure.DOORBELL_US, measure.COMPUTED_US)  # as a start that measures has it
    assert measured_costs(found, [KIND, KIND], 7) == around
    assert measured_costs(found, [KIND, KIND], 8) is None
    assert measured_costs(found, [KIND], 7) is None
    assert measured_costs(record(*all_four[:3]), [KIND, KIND], 7) is None
    kernels = value("cpu.expert", 100.0, rows=1, threads=7, **TYPES)
    both = record(*all_four, kernels)
    assert starting_costs([KIND, KIND], 7, BEFORE, both) == (around, True)
    assert starting_costs([KIND], 7, BEFORE, both) == (Costs(100.0, 45.0, 8.0, 6.0), False)
    assert starting_costs([KIND], 7, BEFORE, record()) == (None, False)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("slim") / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    return directory, replace(config, mtp=False), replace(load_weights(directory, config), mtp=None)


def test_the_split_of_a_model_begins_with_what_was_measured_here(model, tmp_path, monkeypatch):
    directory, config, weights = model
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kind = tiers_layouts(weights)[0]
    types = {"types": f"{kind.gate}/{kind.up}/{kind.down}", "hidden": kind.hidden, "inner": kind.inner}
    made = planned(directory, config, 1)

    def split(*values: Value) -> np.ndarray:
        save(record(*values, machine=here()))
        tier = tiers.build(weights, config, made, torch.device("cpu"), 1)
        try:
            return tier.split.numpy().copy()
        finally:
            tier.close()

    slow_host = (value("cpu.expert", 900.0, rows=1, threads=1, **types), value("link.expert", 30.0, **types))
    slow_link = (value("cpu.expert", 30.0, rows=1, threads=1, **types), value("link.expert", 900.0, **types))
    room, most = tiers.room(config.moe.topk, config.moe.E), 8 * config.moe.topk
    for host, link in (slow_host, slow_link):
        expected = shares(Costs(host.median, link.median, 8.0, 6.0), most, room)
        assert np.array_equal(split(host, link), expected)
    assert split(*slow_host).sum() > 3 * split(*slow_link).sum()


def tiers_layouts(weights) -> list[SlotLayout]:
    from strata.ops.tiers.ram import layouts

    return layouts([layer.moe for layer in weights.layers])


class FakeTier:
    """What `measure.calibrate` needs of a tier."""

    def __init__(self) -> None:
        self.options = type("Options", (), {"costs": BEFORE, "room": 4})()
        self.table = torch.zeros(1)
        self.given: list[Costs] = []

    def share_out(self, given: Costs) -> None:
        self.given.append(given)


def test_the_measurement_at_start_refines_what_was_known_and_an_outlier_does_not_win(monkeypatch, caplog):
    monkeypatch.setattr(measure, "host_costs", lambda _: (100.0, 2.0))
    for before, host in (
        (None, 100.0),
        (Costs(80.0, 45.0), 100.0),
        (Costs(20.0, 45.0), 40.0),
        (Costs(900.0, 45.0), 450.0),
    ):
        tier, expected = FakeTier(), Costs(host, 45.0, 2.0 + measure.DOORBELL_US, 6.0)
        with caplog.at_level(logging.WARNING):
            assert measure.calibrate(tier, before) == expected
        assert tier.given == [expected]
    assert len(caplog.messages) == 2

    def never(_: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr(measure, "host_costs", never)
    tier = FakeTier()
    assert measure.calibrate(tier, Costs(7.0, 9.0), same=True) == Costs(7.0, 9.0)
    assert tier.given == [Costs(7.0, 9.0)]


def windows(about: str, times: dict[int, float], step: float | None = None, misses: float | None = None) -> Record:
    values = [value("model.window", 1e6 * seconds, rows=rows) for rows, seconds in times.items()]
    values += [value("model.misses", misses * rows, rows=rows) for rows in times if misses is not None]
    return record(*values, *([value("model.step", 1e6 * step)] if step else []), about={"model": about})


def test_windows_begin_with_the_models_own_times():
    about = subject("Pebble", "f00d", "cpu", 2)
    assert about == "Pebble (f00d) on the CPU with 2 threads"
    assert subject("M", "f", "cuda:0", 15) == "M (f) on a GPU"
    tiered = subject("M", "f", "cuda:0", 15, tiers=True, ssd=True)
    assert tiered == "M (f) on a GPU and the CPU with 15 threads, some experts on the SSD"
    found = windows(about, {1: 0.020, 4: 0.030}, step=0.002)
    assert start(found, about) == Start({1: pytest.approx(0.020), 4: pytest.approx(0.030)}, pytest.approx(0.002), {})
    assert start(found, subject("Pebble", "f00d", "cpu", 1)) is None
    assert start(windows(about, {4: 0.030}), about) is None, "without one row nothing can be compared"


def test_the_first_window_is_as_deep_as_measured_times_say():
    cheap = Timings(start=Start({n: 1.0 + 0.02 * n for n in range(1, 9)}, 0.01))
    dear = Timings(start=Start({n: 1.0 * n for n in range(1, 9)}, 0.5))
    assert Measured(7, Timings()).plan(7).depth == 0, "nobody knows what a row costs"
    assert Measured(7, cheap).plan(7).depth > 0
    assert Measured(7, dear).plan(7).depth == 0
    right = Measured(7, cheap, head=False, prior=0.95)
    assert right.plan(7).depth == 7


def test_only_proportions_count_once_windows_are_slower_or_faster_than_they_were():
    timings = Timings(start=Start({1: 1.0, 4: 1.3, 8: 2.0}, 0.1))
    assert (timings.window(1), timings.window(4), timings.step) == (1.0, 1.3, 0.1)
    timings.computed(1, 3.0)
    assert (timings.window(1), timings.step) == (pytest.approx(3.0), pytest.approx(0.3))
    assert timings.window(4) == pytest.approx(3.9)
    timings.computed(4, 3.3)
    assert timings.window(4) == pytest.approx(3.3), "what was tried counts"
    timings.drafted(2, 0.8)
    assert timings.step == pytest.approx(0.4)
    for _ in range(KEPT + 1):
        timings.computed(1, 3.0)
    assert timings.window(4) == pytest.approx(1.3 * np.median([3.0, 3.3 / 1.3]), rel=0.1), "old news of a row"


def test_misses_are_taken_out_of_what_was_measured_with_them():
    begun = Timings(0.001, Start({1: 0.030, 4: 0.060}, None, {1: 10.0, 4: 30.0}))
    assert begun.window(1) == pytest.approx(0.020)
    assert begun.window(4) == pytest.approx(0.030)
    assert begun.misses(1) == pytest.approx(10.0, rel=0.1)
    assert Timings(0.0, Start({1: 0.030}, None, {1: 10.0})).window(1) == 0.030
