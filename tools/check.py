"""Everything CI checks, in the order of how fast it fails. `python tools/check.py [pytest arguments]`."""

import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

STEPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("format", ("-m", "ruff", "format", "--check", ".")),
    ("lint", ("-m", "ruff", "check", ".")),
    ("imports", ("-c", "from importlinter.cli import lint_imports_command as run; run()")),
    ("types", ("-m", "mypy")),
    ("tests", ("-m", "pytest", "-q", "-n", "2")),
)


def main(arguments: list[str]) -> int:
    """Run all steps; the first failure ends the run."""
    times = []
    for name, command in STEPS:
        began = time.monotonic()
        extra = arguments if name == "tests" else []
        status = subprocess.run([sys.executable, *command, *extra], cwd=ROOT, check=False).returncode
        times.append(f"{name} {time.monotonic() - began:.0f} s")
        if status:
            print(f"check: {name} failed")
            return status
    print("check: all passed (" + ", ".join(times) + ")")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
