"""Everything that is claimed of a GPU with all weights in its memory, from a bare checkout.

    python tools/gpu_resident.py [--model FILE] [--json bench/results/h200-resident.json]

1. the tests that the marker `gpu` names, natively; 2. compute-sanitizer's memcheck and racecheck over the tests of
every operation; 3. 10,000 replays of a window without a differing byte; 4. bench/gpu_resident.py. Without a model, a
file of random weights in the released shapes (`python -m strata.lab.synthetic`, 54 GiB) is written to --scratch first.
Needs torch, Triton, NumPy, Numba and pytest, no installed project; exits with 1 if anything fails.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_tests import FOLDERS, run

SANITIZED = ("tests/ops/gpu", "-k", "not network")
"""Every operation at small shapes; whole networks take the sanitizer too long."""


def tests(workers: int) -> dict[str, Any]:
    """All device tests."""
    spread = ["-n", str(workers)] if workers > 1 else []
    done = run([*FOLDERS, "-m", "gpu", *spread])
    return {"passed": _number(r"(\d+) passed", done.stdout), "failed": _number(r"(\d+) failed", done.stdout)}


def sanitizer() -> dict[str, Any]:
    """Errors by tool; kernels are compiled already, so time goes into running them."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"missing": "compute-sanitizer is not on the PATH"}
    found = {}
    for tool in ("memcheck", "racecheck"):
        # Every allocation its own, or what lies behind a tensor belongs to torch's cache and nothing is noticed.
        done = run(
            [*SANITIZED, "-m", "gpu"], [program, "--tool", tool, "--error-exitcode", "9"],
            PYTORCH_NO_CUDA_MEMORY_CACHING="1",
        )  # fmt: skip
        summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", done.stdout)
        found[tool] = {
            "errors": int(summary[1]) if summary else None,
            "passed": _number(r"(\d+) passed", done.stdout),
            "failed": _number(r"(\d+) failed", done.stdout),
        }
    return found


def replays(count: int) -> dict[str, Any]:
    """Windows of the small model, each replayed so often that a race would show."""
    done = run(["tests/gpu/test_gpu_replays.py", "-m", "gpu"], STRATA_TEST_REPLAYS=str(count))
    return {"replays": count, "passed": _number(r"(\d+) passed", done.stdout), "failed": done.returncode}


def bench(model: Path, rounds: int) -> dict[str, Any]:
    """Figures, rounds and conditions."""
    out = model.with_suffix(".figures.json")
    command = [sys.executable, "bench/gpu_resident.py", str(model), "--rounds", str(rounds), "--json", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return json.loads(out.read_text())


def _number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def main() -> int:
    """Run all, or what is left of it after --without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replays", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=min(12, os.cpu_count() or 1))
    parser.add_argument("--without", nargs="*", default=[], choices=("tests", "sanitizer", "replays", "bench"))
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-resident.json")
    given = parser.parse_args()
    document: dict[str, Any] = {}
    if "tests" not in given.without:
        document["tests"] = tests(given.workers)
    if "sanitizer" not in given.without:
        document["sanitizer"] = sanitizer()
    if "replays" not in given.without:
        document["replays"] = replays(given.replays)
    if "bench" not in given.without:
        model = given.model or given.scratch / "strata-synthetic.gguf"
        if not model.exists():
            command = [sys.executable, "-m", "strata.lab.synthetic", str(model)]
            subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")})
        document |= bench(model, given.rounds)
    given.json.write_text(json.dumps(document, indent=1) + "\n")
    checks = [document.get("tests", {}), document.get("replays", {}), *document.get("sanitizer", {}).values()]
    bad = [c for c in checks if not isinstance(c, dict) or c.get("failed") or c.get("errors", 0) != 0]
    print(json.dumps({key: value for key, value in document.items() if key != "rounds"}, indent=1))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
