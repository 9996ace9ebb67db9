"""The results file: figures follow from raw rounds, and no part loses what another has found."""

import json
from itertools import permutations

from figures import record
from figures.summary import NAMES, figures, per_window, ratio, share_of_the_first

DECODE = {"arms": {"none": {"rounds": {"decode_tps": [60.0, 50.0, 70.0]}}, "half": {"rounds": {"decode_tps": []}}}}
CAPS = {
    "arms": {
        "resident": {"rounds": {"window4_ms": [5.0, 10.0, 5.0]}},
        "cap24": {"rounds": {"window4_ms": [8.0, 15.0, 7.0]}},
        "cap12": {"does_not_fit": "12 GB are too few"},
    }
}
OTHERS = {
    "prompt_none": {"rounds": {"4096": [1.0], "8192": [6000.0, 5000.0]}},
    "prompt_cap24": {"rounds": {"17": [2.0], "200": [700.0]}},
    "restore": {"rounds": {"ram_ms": [50.0, 52.0, 90.0], "disk_ms": [300.0]}},
    "host": {"matrices": [{"type": "Q8_0", "rounds_1": [80.0, 90.0, 70.0]}, {"type": "F16", "rounds_1": [1.0]}]},
}


def test_figures_are_medians_of_rounds():
    found = figures({"decode": DECODE, "caps": CAPS, **OTHERS})
    assert found == {
        "none_resident_tps": 60.0,
        "cap24_window_ratio": 1.5,  # of 1.6, 1.5 and 1.4: within each round, not of the medians
        "prompt_8192_none_tps": 5500.0,
        "prompt_200_cap24_tps": 700.0,
        "restore_ram_ms": 52.0,
        "restore_disk_ms": 300.0,
        "cpu_q8_0_gbs": 80.0,
    }
    assert found.keys() <= set(NAMES)
    assert figures({}) == {}


def test_a_ratio_is_taken_within_rounds():
    assert ratio([2.0, 9.0, 8.0], [1.0, 3.0]) == 2.5
    assert ratio([], [1.0]) is None


def test_what_windows_met_is_told_by_window():
    sums = {
        "layers": 96,
        "experts": 960,
        "resident": 480,
        "link": 240,
        "host": 240,
        "whole": 6,
        "waits": 40,
        "waited_us": 900.0,
    }
    assert per_window(sums, 48) == {
        "windows": 2, "union": 480.0, "resident": 240.0, "by_link": 120.0, "by_host": 120.0, "hit_rate": 0.5,
        "layers_without_a_miss": 3.0, "waits_for_the_host": 20.0, "host_wait_us": 450.0,
    }  # fmt: skip
    assert per_window(dict.fromkeys(sums, 0), 48) == {"windows": 0}


def test_the_share_of_the_most_visited():
    assert share_of_the_first([1, 5, 0, 4], 0.5) == 0.9
    assert share_of_the_first([0, 0], 0.5) == 0.0


def test_parts_come_in_any_order_and_none_loses_another():
    parts = {"decode": DECODE, "caps": CAPS, **OTHERS}
    outcomes = set()
    for order in list(permutations(parts))[::17]:
        document = {"sessions": [{"when": "now"}]}
        for name in order:
            document = record.merged(document, name, parts[name], complete=True)
        outcomes.add(json.dumps(document, sort_keys=True))
        assert document["sessions"] == [{"when": "now"}]
        assert set(document["parts"]) == set(parts)
    assert len(outcomes) == 1


def test_a_failure_keeps_what_was_found_and_goes_when_the_part_is_complete():
    document = record.merged({}, "decode", DECODE, complete=False)
    failed = record.failed(document, "decode", "RuntimeError: no", "line\n" * 100, 12.34)
    assert failed["figures"] == {"none_resident_tps": 60.0}
    assert failed["failures"]["decode"] == {"error": "RuntimeError: no", "details": ["line"] * 60, "after_s": 12.3}
    assert document.get("failures") == {}
    other = record.merged(failed, "caps", CAPS, complete=True)
    assert set(other["failures"]) == {"decode"}
    again = record.merged(other, "decode", DECODE, complete=False)
    assert set(again["failures"]) == {"decode"}
    assert record.merged(again, "decode", DECODE, complete=True)["failures"] == {}


def test_a_figure_of_an_earlier_run_stays_until_there_is_a_new_one():
    before = {"figures": {"restore_ram_ms": 40.0, "none_resident_tps": 1.0, "not one of ours": 3.0}}
    now = record.merged(before, "decode", DECODE, complete=True)
    assert now["figures"] == {"none_resident_tps": 60.0, "restore_ram_ms": 40.0}
    assert record.lacking(now) == [name for name in NAMES if name not in now["figures"]]


def test_the_file_is_replaced_in_one_step(tmp_path):
    path = tmp_path / "out.json"
    assert record.read(path) == {}
    record.write(path, record.merged({}, "caps", CAPS, complete=True))
    assert record.read(path)["figures"] == {"cap24_window_ratio": 1.5}
    assert [one.name for one in tmp_path.iterdir()] == ["out.json"]
