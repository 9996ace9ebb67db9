"""The tool that shows what the commands do, on a machine without a GPU."""

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from strata import pebble

ROOT = Path(__file__).parents[1]


def test_a_command_that_takes_too_long_is_kept_with_what_it_said(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    commands = importlib.import_module("gpu_commands")
    given = argparse.Namespace(model="nothing.gguf", within=0.0, vram="", smaller="", port=1)

    def late(*_, **__):
        raise subprocess.TimeoutExpired("strata", 1.0, output=b"on cuda:0", stderr=b"loading\n")

    monkeypatch.setattr(commands.subprocess, "run", late)
    found = commands.Commands(given).run()
    assert found == {"failed": True, "said": ["loading", "on cuda:0", "not done after 1 s"]}


@pytest.mark.slow
def test_answers_of_a_server_are_one_text_and_what_fails_is_said(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    out = tmp_path / "found.json"
    out.write_text('{"bench": {"failed": false}}')
    flags = ["--model", str(pebble.path("q8_0")), "--vram", "", "--port", str(port), "--json", str(out)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/gpu_commands.py"), "--only", "plan", "serve", *flags],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "== plan: right" in done.stdout
    found = json.loads(out.read_text())
    assert list(found) == ["bench", "plan", "serve"]
    assert set(found["serve"]["texts"]) == {"first", "again", "streamed"}
    assert len(set(found["serve"]["texts"].values())) == 1
    assert found["serve"]["exit"] == 0
    flags[1] = str(tmp_path / "nothing.gguf")
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools/gpu_commands.py"), "--only", "plan", *flags],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(out.read_text())["plan"]["failed"]
