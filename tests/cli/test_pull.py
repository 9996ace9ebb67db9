"""`strata pull` on a command line, against the stand-in of the hub."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from strata.cli.main import main
from strata.hub.folder import Folder
from strata.pebble import path as pebble_file
from support.hub import FakeHub, Fault, serving

SRC = Path(__file__).parents[2] / "src"


@pytest.fixture
def site(monkeypatch, tmp_path):
    for name in ("HF_TOKEN", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    hub = FakeHub()
    content = pebble_file("iq3").read_bytes()
    hub.files["maker/Pebble"] = {"pebble-IQ3_XXS.gguf": content, "pebble-Q8_0.gguf": content}
    with serving(hub):
        monkeypatch.setenv("STRATA_HUB_ENDPOINT", hub.url)
        yield hub


def test_pulled_and_run(site, capsys, tmp_path) -> None:
    assert main(["pull", "maker/Pebble:IQ3_XXS"]) == 0
    captured = capsys.readouterr()
    path = tmp_path / "strata/models/maker/Pebble/pebble-IQ3_XXS.gguf"
    assert captured.out == f"{path}\n"
    assert "maker/Pebble:IQ3_XXS at c0ffeec0ffee: pebble-IQ3_XXS.gguf, 12.4 MB" in captured.err
    assert "`strata chat --model maker/Pebble:IQ3_XXS` runs it" in captured.err
    assert path.read_bytes() == site.files["maker/Pebble"]["pebble-IQ3_XXS.gguf"]
    assert main(["plan", "maker/Pebble:IQ3_XXS", "--vram", "0", "--ram", "8GB"]) == 0


def test_for_machines_and_dry(site, capsys, tmp_path) -> None:
    assert main(["pull", "maker/Pebble:Q8_0", "--dry", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == ["pebble-Q8_0.gguf"]
    assert site.asked == []
    folder = tmp_path / "elsewhere"
    assert (
        main(["pull", "maker/Pebble:Q8_0", "--json", "--models-folder", str(folder), "--hub-endpoint", site.url]) == 0
    )
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(folder / "maker/Pebble/pebble-Q8_0.gguf")
    assert [receipt.name for receipt in Folder(folder).receipts()] == ["maker/Pebble:Q8_0"]


@pytest.mark.parametrize(
    ("tokens", "why"),
    [
        (["maker/Pebble"], "maker/Pebble has several models; name one: maker/Pebble:IQ3_XXS (12.4 MB)"),
        (["maker/Pebble:IQ3"], "has no IQ3; did you mean IQ3_XXS?"),
        (["qwen3.8-flash-next:IQ3_XXS"], "not where it is to be had (ISTA-DASLab GSQ-RCO publishes it)"),
        (["pebble"], "'pebble' is no name of a model on a hub"),
        (
            ["maker/Pebble", "--hub-endpoint", "ftp://x"],
            "--hub-endpoint must be an address such as https://huggingface.co",
        ),
    ],
)
@pytest.mark.usefixtures("site")
def test_what_is_wrong_is_said(capsys, tokens, why) -> None:
    assert main(["pull", *tokens]) in {1, 2}
    assert why in " ".join(capsys.readouterr().err.split())


def test_ctrl_c_leaves_what_the_next_pull_goes_on_with(site, tmp_path) -> None:
    """A process of its own, stopped in the middle: the line stalls after four megabytes."""
    name = "pebble-IQ3_XXS.gguf"
    site.faults[name] = Fault(stall=4 << 20)
    command = [sys.executable, "-m", "strata", "pull", "maker/Pebble:IQ3_XXS"]
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        own = tmp_path / "strata/models/maker/Pebble/.strata"
        deadline = time.monotonic() + 120
        while not any(part.stat().st_size >= 3 << 20 for part in own.glob("*.part")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 130
    (part,) = own.glob("*.part")
    have = part.stat().st_size
    assert have >= 3 << 20
    site.faults.clear()
    site.asked.clear()
    assert main(["pull", "maker/Pebble:IQ3_XXS"]) == 0
    assert site.asked[0][1] == f"bytes={have}-{len(site.files['maker/Pebble'][name]) - 1}"
