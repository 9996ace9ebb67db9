"""Windows and draft steps of a real model: as many rows as were asked for, and the engine's own time of them."""

import json

import pytest

from strata.api import load
from strata.lab.calibrate import value
from strata.lab.calibrate.model import Loading, drafting, model, tier
from strata.lab.calibrate.run import run
from strata.lab.rates import window as windows_
from strata.lab.rates.rounds import Pace, Sample, StoppedError
from strata.lab.rates.window import windows
from strata.loading.calibration import Machine, Part, Record, here, save
from strata.loading.calibration.use import start, subject, subject_of
from strata.loading.files import ModelFile
from strata.loading.network import load_network
from strata.version import __version__

EMPTY = Record(Machine("Abacus 9", 2, 2, 1 << 34), __version__)


@pytest.fixture(scope="module")
def file():
    return ModelFile.open("pebble")


@pytest.fixture(scope="module")
def loaded(file):
    return load_network(file, device="cpu", context=48)


def test_windows_have_the_rows_that_were_asked_for(loaded, monkeypatch):
    seen = []
    real = windows_.step

    def watched(network, generations):
        before = generations[0].state.length
        events = real(network, generations)
        seen.append((generations[0], before))
        return events

    monkeypatch.setattr(windows_, "step", watched)
    told = []
    found = windows(drafting(loaded.network), Pace(rounds=2), lambda *a: told.append(a))
    assert sorted(found.seconds) == list(range(1, 9))
    assert all(sample.rounds == 2 and sample.least > 0 for sample in found.seconds.values())
    assert found.step is not None
    assert found.step.least > 0
    assert found.misses == {}
    assert told[0] == (0, 8 * 3 + 3)
    assert len({id(generation) for generation, _ in seen}) > 1, "a full context begins a new answer"
    drafted = sum(sum(g._drafted.values()) for g in {id(g): g for g, _ in seen}.values())
    assert drafted == 3 * sum(range(8)), "rows beside the first are guesses, the warm-up's among them"


def test_times_are_those_of_the_engine(loaded, monkeypatch):
    answer = windows_._Answer(loaded.network, Pace())
    monkeypatch.setattr(windows_._Probe, "learn", lambda self, *_: setattr(self, "seconds", 0.125))
    assert answer.window(3) == 0.125


def test_it_stops_between_windows(loaded):
    with pytest.raises(StoppedError):
        windows(loaded.network, Pace(stop=lambda: True))


def test_a_context_of_a_few_tokens_will_do(file):
    small = load_network(file, device="cpu", context=16).network
    assert sorted(windows(small, Pace(rounds=1)).seconds) == list(range(1, 8))


def test_what_was_measured_is_what_its_engine_begins_with(file, loaded):
    loading = Loading(lambda: loaded, lambda it: subject_of(file, it))
    record, whole, found = run(
        [model(loading, Pace(rounds=1)), tier(loading, Pace(rounds=1))], EMPTY, quick=True, keep=lambda _: None
    )
    assert whole
    (part,) = found
    assert part.problem == ""
    assert part.about == f"Pebble ({file.fingerprint}) on the CPU with 1 thread"
    begun = start(record, subject_of(file, loaded))
    assert sorted(begun.windows) == list(range(1, 9))
    assert begun.step
    loading.close()
    assert loading.about == ""


def test_a_model_that_cannot_be_loaded_is_a_reason(file):
    def load():
        return load_network(file, device="cpu", context=10**9)

    loading = Loading(load, lambda it: subject_of(file, it))
    _, whole, (part,) = run(
        [model(loading, Pace(rounds=1)), tier(loading, Pace(rounds=1))], EMPTY, quick=True, keep=lambda _: None
    )
    assert whole
    assert part.problem.startswith("model, its windows: ")
    assert "context" in part.problem


def test_answers_are_the_same_whatever_was_measured_and_drafts_are_not(file, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    about = subject("Pebble", file.fingerprint, "cpu", 1)

    def answer(*times: float) -> tuple[str, list[int]]:
        values = [value("model.window", Sample(t, t, t, 1), rows=n) for n, t in enumerate(times, 1)]
        values.append(value("model.step", Sample(100.0, 100.0, 100.0, 1)))
        part = Part("model", about, "2026-11-30T14:00:00+00:00", quick=False, values=tuple(values))
        save(Record(here(), __version__, (part,)))
        with load("pebble", device="cpu", context=256) as it:
            text = it.complete("1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8 1 2 3", max_tokens=12, temperature=0.0).text
            events = json.loads(it.trace())["traceEvents"]
        return text, [event["args"]["rows"] for event in events if event.get("name") == "window"]

    cheap, dear = answer(*(1e5 + n for n in range(8))), answer(*(1e3 * 3.0**n for n in range(8)))
    assert cheap[0] == dear[0]
    assert (dear[1][0], dear[1][1]) == (1, 1)
    assert cheap[1][0] > 2, "without measurements the first window has one row, to learn what it costs"
