"""Whatever becomes of a part, the others are measured, and the file says what became of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

DRIVER = """
import os, sys, time
sys.path[:0] = [{src!r}, {tools!r}]
from figures import parts, watch
from figures.parts import Part

def fine(session):
    found = {{"rounds": {{"200": []}}}}
    for turn in session.rounds():
        if turn >= 0:
            found["rounds"]["200"].append(100.0 + turn)
            session.keep(found)
    return found

def breaks(session):
    session.keep({{"rounds": {{"ram_ms": [7.0]}}}})
    raise ValueError("it broke")

def hangs(session):
    print("about to wait", flush=True)
    time.sleep(1000)

def dies(session):
    os._exit(7)

parts.PARTS.clear()
parts.PARTS.update(
    restore=Part(breaks, 60), host=Part(hangs, 2), decode=Part(dies, 60), prompt_cap24=Part(fine, 60)
)
watch._command = lambda given: [sys.executable, "-u", __file__, "--device", "cpu", "--disk", str(given.disk)]
import gpu_tiers
sys.exit(gpu_tiers.main())
"""


@pytest.mark.slow
def test_the_others_go_on(tmp_path):
    driver, out = tmp_path / "driver.py", tmp_path / "out.json"
    driver.write_text(DRIVER.format(src=str(ROOT / "src"), tools=str(ROOT / "tools")))
    out.write_text(json.dumps({"figures": {"none_resident_tps": 61.0}, "failures": {"caps": {"error": "earlier"}}}))
    names = ["restore", "host", "decode", "prompt_cap24"]
    more = ["--warm", "--disk", str(tmp_path), "--scratch", str(tmp_path), "--json", str(out), "--within", "2000"]
    done = subprocess.run(
        [sys.executable, str(driver), "--only", *names, *more], capture_output=True, text=True, timeout=500, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    told = json.loads(out.read_text())
    assert told["figures"] == {"none_resident_tps": 61.0, "prompt_200_cap24_tps": 102.0, "restore_ram_ms": 7.0}
    assert told["parts"]["prompt_cap24"]["complete"] is True
    assert told["parts"]["prompt_cap24"]["rounds"]["200"] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert told["parts"]["restore"]["complete"] is False
    failures = told["failures"]
    assert set(failures) == {"restore", "host", "decode", "caps"}
    assert failures["restore"]["error"] == "ValueError: it broke"
    assert any("raise ValueError" in line for line in failures["restore"]["details"])
    assert "about to wait" in failures["host"]["error"]
    assert any("in hangs" in line for line in failures["host"]["details"])
    assert "ended with 7" in failures["decode"]["error"]
    assert len(told["sessions"]) == 3  # one process, one more after the part that hung, one after the part that died
    assert "not measured: half_resident_tps" in done.stdout
