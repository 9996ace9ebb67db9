"""The tables of docs/formats.md, and the tool that writes and checks them."""

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "formats.md"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("format_errors", ROOT / "tools" / "format_errors.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def measured(tool):
    return {"types": tool.types_table(), "errors": tool.errors_table()}


@pytest.fixture
def quick(tool, measured, monkeypatch):
    """The tool with its measurements already made."""
    monkeypatch.setattr(tool, "TABLES", {name: (lambda table=table: table) for name, table in measured.items()})
    return tool


def test_the_document_is_current(quick, capsys):
    assert quick.main(["--check"]) == 0, capsys.readouterr().out


def test_no_type_beats_the_rate_distortion_bound(measured):
    """No code with b bits has a relative error below 2^-b on a Gaussian source; a lower figure was measured wrongly."""
    rows = re.findall(r"^\| (\w+) \| ([\d.]+) \| ([\d.]+) \|", measured["errors"], re.MULTILINE)
    assert len(rows) == 23
    for name, bits, error in rows:
        assert name == "F32" or float(error) / 100 > 2.0 ** -float(bits), name


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"(\| Q4_K \| 4.5 \| )7\.\d\d", r"\g<1>6.50"),
        (r"(\| Q4_K \| 4)\.5 ", r"\g<1>.6 "),
        (r"\| IQ2_S \| 2\.5625 .*\n", ""),
        (r"(\| Q2_K \| 10 \| 256 \| )84", r"\g<1>85"),
        (r"(\| Q8_0 \| 8\.5 \| )[\d.]+", r"\g<1>n/a"),
        (r"<!-- errors: end -->", ""),
    ],
    ids=["error", "bits", "row", "bytes", "word", "marker"],
)
def test_a_stale_document_is_noticed(quick, tmp_path, old, new, capsys):
    text, changes = re.subn(old, new, DOCUMENT.read_text())
    assert changes == 1
    (tmp_path / "formats.md").write_text(text)
    assert quick.main(["--check"], tmp_path / "formats.md") == 1
    assert "formats.md" in capsys.readouterr().out
    assert (tmp_path / "formats.md").read_text() == text


@pytest.mark.parametrize(("units", "stale"), [(-2, 1), (-1, 0), (1, 0), (2, 1)])
def test_one_unit_of_the_last_digit_is_allowed(quick, tmp_path, units, stale, measured):
    error = re.search(r"\| IQ3_S \| 3.4375 \| ([\d.]+)", measured["errors"]).group(1)
    text = DOCUMENT.read_text()
    text = re.sub(r"(\| IQ3_S \| 3.4375 \| )[\d.]+", rf"\g<1>{float(error) + 0.1 * units:.1f}", text)
    (tmp_path / "formats.md").write_text(text)
    assert quick.main(["--check"], tmp_path / "formats.md") == stale


def test_rewriting_repairs_the_document(quick, tmp_path):
    text = DOCUMENT.read_text().replace("| Q4_K |", "| Q4_X |")
    (tmp_path / "formats.md").write_text(text)
    assert quick.main([], tmp_path / "formats.md") == 0
    assert quick.main(["--check"], tmp_path / "formats.md") == 0
    outside = re.compile(r"begin -->\n.*?\n<!--", re.DOTALL)
    assert outside.sub("", (tmp_path / "formats.md").read_text()) == outside.sub("", DOCUMENT.read_text())


def test_the_example_in_the_document_runs():
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL).group(1)
    names = {}
    exec(compile(code, str(DOCUMENT), "exec"), names)
    assert names["blocks"].shape == (4, 288)
    assert names["weights"].shape == (4, 512)
