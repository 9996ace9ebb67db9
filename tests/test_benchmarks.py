"""Every benchmark runs; how fast is not a test's business."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"
SMALL = {
    "activations.py": ["--tokens", "100"],
    "choosing.py": ["--repeats", "2", "--vocabulary", "40000"],
    "conversations.py": ["--rounds", "1", "--lengths", "64", "128"],
    "delta_rule.py": ["--rounds", "1", "--rows", "1", "64"],
    "doorbell.py": ["--rounds", "50"],
    "drafts.py": ["--rounds", "1", "--tokens", "4"],
    "experts_gemv.py": ["--megabytes", "1", "--repeats", "1", "--types", "Q8_0", "F32", "--keep", "no"],
    "experts_pool.py": ["--megabytes", "2", "--repeats", "1", "--types", "Q8_0"],
    "gguf_open.py": ["--runs", "1", "--keep", "no"],
    "host_answers.py": ["--experts", "12", "--messages", "2", "--rounds", "1", "--threads", "1"],
    "kv_types.py": ["--tokens", "100"],
    "rereading.py": ["--turns", "2"],
    "slots.py": ["--windows", "20"],
    "storage.py": ["--gigabytes", "0.02", "--tokens", "10", "--experts", "16", "--threads", "1"],
    "windows.py": ["--rounds", "1"],
}
NEED_A_GPU = {
    f"gpu_{what}.py"
    for what in ("bring", "choosing", "decode", "depth", "matvec", "prompt", "quality", "resident", "upload")
}


def test_none_is_forgotten():
    assert {path.name for path in BENCH.glob("*.py")} == {*SMALL, *NEED_A_GPU}


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_it_runs_and_prints_a_table(name, tmp_path):
    command = [sys.executable, str(BENCH / name), *SMALL[name]]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) > 3
    assert list(tmp_path.iterdir()) == []
