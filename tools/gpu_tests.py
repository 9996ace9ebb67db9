"""Run the tests that need a GPU: `python tools/gpu_tests.py [pytest arguments]`.

Needs torch, Triton, NumPy, Numba and pytest, no installed project. With pytest-xdist, `-n 8` compiles kernels eight
at a time.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: list[str]) -> int:
    """Run `tests/gpu` natively."""
    environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT / "src")}
    # Plugins of that machine may warn, and warnings of its versions are no errors of ours.
    quiet = ["-p", "no:benchmark", "-p", "no:randomly", "-W", "default"]
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-m", "gpu", "-q", *quiet, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
