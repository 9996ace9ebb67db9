"""docs/performance.md is what its command writes."""

import json
import re
import subprocess
import sys
from pathlib import Path

from figures import tables
from figures.summary import NAMES

ROOT = Path(__file__).parents[2]


def test_the_page_is_what_the_command_writes():
    command = [sys.executable, "tools/performance.py", "--check"]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0, "run python tools/performance.py"


def test_every_figure_has_a_row():
    assert [claim.name for claim in tables.TIERS] == list(NAMES)


def cells(text, start):
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start}")]
    return [cell.strip() for cell in line.strip("| ").split("|")]


def test_a_row_says_what_was_reached_and_how_far_the_bound_is():
    figures = {"none_resident_tps": 60.0, "half_resident_tps": 140, "cap24_window_ratio": 2.4, "restore_ram_ms": 20.0}
    bounds = {"none_resident_tps": {"bound": 120.0}, "restore_ram_ms": {"bound": 10.0}}
    text = tables.claims(tables.TIERS, figures, bounds)
    assert cells(text, "plain decode, no")[1:] == ["21.6", "55", "80", "**60**", "reached", "120", "50%"]
    assert cells(text, "plain decode, half")[4:6] == ["**140**", "aim"]
    assert cells(text, "24 GB cap")[4:6] == ["**2.40**", "missed"]
    assert cells(text, "first token")[4:] == ["**20**", "aim", "10", "50%"]
    assert cells(text, "12 GB cap")[4] == tables.NOT


def test_a_long_text_is_compared_with_an_empty_context():
    for deep, said in ((400.0, "aim"), (382.0, "reached"), (370.0, "missed")):
        text = tables.claims(tables.RESIDENT, {"plain_decode_tps": 400.0, "plain_decode_32k_tps": deep}, {})
        assert cells(text, "plain decode behind")[5] == said


def test_all_tables_are_filled_and_writing_twice_changes_nothing():
    met = {"union": 480, "resident": 300, "by_link": 100, "by_host": 80, "hit_rate": 0.625, "host_wait_us": 1500.0}
    arm = {
        "met": {"decode": met, "window4": met},
        "medians": {"window1_ms": 9.0, "window4_ms": 12.0},
    }
    told = {
        "figures": {"none_resident_tps": 60.0},
        "bounds": {"none_resident_tps": {"bound": 150.0, "dense_ms": 1.0, "hits_ms": 0.0, "misses_ms": 5.6}},
        "parts": {
            "decode": {"arms": {"none": arm}},
            "caps": {"arms": {"cap24": arm, "cap12": {"does_not_fit": "13.1 GB are needed"}}},
            "bandwidths": {"ram_gbs": 100.0, "link_gbs": 55.5},
            "prompt_none": {"tokens": 8192, "medians": {"8192": 6543.2}, "brought": {"8192": 24576}},
            "prompt_cap24": {"medians": {"200": 987.6}, "brought": {"200": 14321}},
            "restore": {
                "bytes": 1.17e9,
                "q8": {"bytes": 0.74e9},
                "rounds": {
                    "ram_ms": [50.0, 61.0, 70.0], "ram_parts_ms": [{"state": 31.5, "token": 12.0}],
                    "ram_q8_ms": [43.25], "disk_q8_ms": [], "disk_ms": [],
                },
            },
            "host": {"layers": [{"mix": "A/B/C", "experts": 10, "microseconds": 412.0, "gb_per_s": 52.8}]},
            "nodes": {"none": {"1": 1200, "4": None}},
        },
        "failures": {"restore": {"error": "RuntimeError: no"}},
        "sessions": [
            {
                "when": "2026-01-01", "gpu": {"name": "NVIDIA H200", "clocks.sm": "1980 MHz"}, "cores": 16,
                "processor": "Xeon", "memory_gb": 134.0, "versions": {"torch": "2.11", "triton": ""},
            }
        ],
    }  # fmt: skip
    page = (ROOT / "docs/performance.md").read_text()
    text = tables.page(page, told, {"figures": {"plain_decode_tps": 300.0}, "conditions": {"cores": 16}})
    assert tables.page(text, told, {"figures": {"plain_decode_tps": 300.0}, "conditions": {"cores": 16}}) == text
    for wanted in (
        "**60**",
        "62.5%",
        "13.1 GB are needed",
        "1200",
        "55.5",
        "6,543",
        "14,321",
        "61.0",
        "| ram, keys and values in eight bits | 0.74 |  |  | 43.2 |",
        "31.5",
        "52.8",
        "NVIDIA H200",
        "Failed: restore",
        "**300**",
    ):
        assert wanted in text, wanted
    names = re.findall(r"<!-- (?!end)(\w+) -->\n", page)
    assert len(names) == page.count("<!-- end -->") == 9
    assert "<!-- tiers -->\nnot" not in text
    assert json.loads(json.dumps(told)) == told
