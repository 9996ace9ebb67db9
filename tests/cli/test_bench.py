"""`strata bench` runs; how fast is not a test's business."""

import json
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.cli.bench.summary import interval, order, summarise
from strata.cli.main import main
from support.command import strata

VALUES = st.lists(st.floats(0.1, 1000), min_size=1, max_size=20)


@given(VALUES)
def test_an_interval_holds_the_median_and_stays_within_the_values(values) -> None:
    low, high = interval(values)
    assert min(values) <= low <= statistics.median(values) <= high <= max(values)
    assert interval(values) == (low, high)


def test_an_interval_is_that_of_the_exact_bootstrap() -> None:
    # Medians of all 27 resamples of three values: 1 in 7 of them, 2 in 13, 9 in 7. So 95% of them are 1 to 9, half 2.
    assert interval([1.0, 2.0, 9.0]) == (1.0, 9.0)
    assert interval([1.0, 2.0, 9.0], confidence=0.4) == (2.0, 2.0)


def test_ratios_are_taken_within_rounds() -> None:
    first, second = summarise("w", "s", {"a": [1.0, 10.0, 100.0], "b": [2.0, 20.0, 200.0]})
    assert (first.ratio, first.median, second.median) == (None, 10.0, 20.0)
    assert (second.ratio, second.ratio_low, second.ratio_high) == (2.0, 2.0, 2.0)


def test_arms_go_forwards_and_backwards() -> None:
    assert [order("ab", turn) for turn in range(3)] == [["a", "b"], ["b", "a"], ["a", "b"]]


def test_it_measures_everything_and_says_under_which_conditions(tiny, tmp_path) -> None:
    file, trace = tmp_path / "b.json", tmp_path / "t.json"
    sizes = ["--rounds", "1", "--tokens", "4", "--prompt-tokens", "70", "--save", str(file), "--trace", str(trace)]
    done = strata("bench", "--model", str(tiny), *sizes)
    assert (done.returncode, done.stderr) == (0, "strata: warning: intervals of fewer than 5 rounds say little\n")
    result = json.loads(file.read_bytes())
    assert {row["workload"].partition(":")[0] for row in result["rows"]} == {"decode", "prompt", "mixed"}
    assert all(row["median"] > 0 and len(row["values"]) == 1 for row in result["rows"])
    assert result["conditions"]["versions"].keys() == {"strata", "python", "torch", "numpy", "numba"}
    assert result["conditions"]["model"] == "tiny"
    assert json.loads(trace.read_bytes())["traceEvents"]
    assert done.stdout.count("\n") == len(result["rows"]) + 4


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--tokens", "1"], "--tokens must be at least 2, not 1"),
        (["--rounds", "0"], "--rounds must be at least 1, not 0"),
        (["--drafts", "8"], "--drafts must be at most 7, not 8"),
        (["speed"], "speed"),
    ],
    ids=str,
)
def test_what_cannot_be_measured_is_refused_before_anything_is_loaded(flags, said, capsys) -> None:
    assert main(["bench", *flags]) == 2
    assert said in capsys.readouterr().err


def test_a_roofline_is_of_the_model_as_the_settings_place_it(monkeypatch, capsys) -> None:
    asked: dict[str, object] = {}

    @contextmanager
    def load(_: str, **more: object) -> Iterator[SimpleNamespace]:
        asked.update(more)
        ops = SimpleNamespace(recorded={}, tier=object())
        yield SimpleNamespace(network=SimpleNamespace(ops=ops), ready=SimpleNamespace(placed="cuda:0 (Abacus 9): 1 GB"))

    monkeypatch.setattr("strata.api.load", load)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert main(["bench", "roofline", "--vram", "24GB"]) == 1
    assert (asked["vram"], asked["drafts"], asked["ram"]) == (24 * 10**9, True, None)
    assert "experts are all in the GPU's memory; this one is on cuda:0 (Abacus 9): 1 GB." in capsys.readouterr().err


def test_a_roofline_needs_a_gpu() -> None:
    done = strata("bench", "roofline", "--device", "cpu")
    assert done.returncode == 1
    assert "this one is computed on the CPU" in done.stderr
