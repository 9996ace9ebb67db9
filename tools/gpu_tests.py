"""Run the tests that need a GPU: `python tools/gpu_tests.py [pytest arguments]`.

Needs torch, Triton, NumPy, Numba and pytest, no installed project. With pytest-xdist, `-n 8` compiles kernels eight
at a time.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("tests/gpu", "tests/ops/gpu", "tests/ops/prompt", "tests/ops/tiers")

# Plugins of that machine may warn, and warnings of its versions are no errors of ours.
QUIET = (
    "-v", "--no-header", "-p", "no:benchmark", "-p", "no:randomly", "-W", "default", "-o", "addopts=",
    "--import-mode=importlib",  # files of one name in two folders
)  # fmt: skip


def run(arguments: Sequence[str], before: Sequence[str] = (), **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest natively, behind another command if one is given; its output is shown and returned."""
    paths = os.pathsep.join(str(ROOT / name) for name in ("src", "tests"))
    settings = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": paths} | environment
    command = [*before, sys.executable, "-m", "pytest", *QUIET, *arguments]
    # One line after another to the screen, all of them to the caller.
    with subprocess.Popen(
        command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        lines = []
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "PASSED" not in line:  # thousands; a failure is seen when it happens
                print(line, end="", flush=True)
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines))


def main(arguments: list[str]) -> int:
    """Run all of them, or what the arguments choose."""
    chosen = any(Path(ROOT, one.split("::")[0]).exists() for one in arguments if not one.startswith("-"))
    return run([*(() if chosen else FOLDERS), "-m", "gpu", *arguments]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
