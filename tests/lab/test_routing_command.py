"""The command: a recording is made, played, and its results are kept."""

import json
from xml.etree import ElementTree as ET

import pytest

from strata.lab.routing.__main__ import main
from strata.lab.routing.compare import policies
from strata.lab.routing.plot import Axis, chart


def test_a_recording_is_made_and_compared(tmp_path, capsys) -> None:
    trace, result, picture = (tmp_path / name for name in ("t", "deep/r.json", "p.svg"))
    assert main(["make", "--rows", "160", "--out", str(trace)]) == 0
    asked = ["compare", "--trace", str(trace), "--sizes", "12", "--json", str(result), "--svg", str(picture)]
    assert main(asked) == 0
    shown = capsys.readouterr().out
    found = json.loads(result.read_text())
    assert {each["policy"] for each in found["scores"]} == set(policies())
    assert all(each["policy"] in shown and 0 < each["hits"] < 1 for each in found["scores"])
    assert found["conditions"]["command"].startswith("python -m strata.lab.routing")
    drawn = ET.fromstring(picture.read_text())
    assert len(drawn.findall("{http://www.w3.org/2000/svg}polyline")) == len(policies())


def test_short_prompts_are_read(tmp_path, capsys) -> None:
    result = tmp_path / "r.json"
    assert (
        main(["reading", "--learned", "300", "--sizes", "0", "30", "100", "--link", "50", "--json", str(result)]) == 0
    )
    found = json.loads(result.read_text())["prompts"]
    assert "| 30%, 200 tokens |" in capsys.readouterr().out
    for each in found:
        assert each["missing"] == pytest.approx(512 * (1 - each["size"] / 100), rel=1e-3, abs=0.1)
        assert each["missed"] <= min(each["missing"], each["visited"])
        assert each["link_ms"] == pytest.approx(each["missed"] * 48 * 2_176_000 / 50e6)
    by = {(each["size"], each["tokens"]): each["missed"] for each in found}
    assert by[0, 200] > 1.5 * by[30, 200] > by[100, 200] == 0  # those that many visit are here
    assert by[30, 17] < by[30, 200] < by[30, 1000]


def test_errors_are_said(tmp_path, capsys) -> None:
    assert main(["make"]) == 1
    assert main(["compare", "--trace", str(tmp_path / "none")]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_chart_puts_values_where_they_belong() -> None:
    text = chart("a < b", Axis("x", 0, 10, 5), Axis("y", 0, 100, 50), {"one": [(0, 0), (10, 100)]}, {"r": (5, 40, 60)})
    root = ET.fromstring(text)
    (line,) = root.findall("{http://www.w3.org/2000/svg}polyline")
    (x0, y0), (x1, y1) = (map(float, pair.split(",")) for pair in line.get("points").split())
    assert x1 - x0 == pytest.approx(820 - 60 - 220)
    assert y0 - y1 == pytest.approx(520 - 30 - 50)
    assert "a &lt; b" in text
