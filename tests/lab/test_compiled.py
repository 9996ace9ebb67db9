"""What looks at compiled kernels, in processes without Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

HERE = Path(__file__).parent
ENVIRONMENT = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": os.pathsep.join(sys.path)}


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=1200)


def test_the_check_finds_what_it_is_for():
    done = _run("pytest", str(HERE / "compiled"), "-q", "-p", "no:randomly", "-p", "no:xdist")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "passed" in done.stdout
    assert "skipped" not in done.stdout


@pytest.mark.slow
def test_every_kernels_machine_code_is_as_recorded():
    """A change made for one architecture shows on all that it changes: run with --update, and review the difference."""
    done = _run("strata.lab.codegen")
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "; 0 findings" in done.stdout
