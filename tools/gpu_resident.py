"""Everything that is claimed of a GPU with all weights in its memory, from a bare checkout.

    python tools/gpu_resident.py [--model FILE] [--json bench/results/h200-resident.json]

1. Kernels are compiled by several processes at once, on a model of four layers, while a file of random weights in the
released shapes (`python -m strata.lab.synthetic`, 54 GiB) is written to --scratch, if no model is given;
2. bench/gpu_resident.py and the roofline, alone on the machine; 3. the tests that the marker `gpu` names, natively,
compute-sanitizer's memcheck and racecheck over those of every operation, and 10,000 replays of windows without a
differing byte. Needs torch, Triton, NumPy, Numba and pytest, no installed project. Results are written as they come;
exits with 1 if anything fails.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_tests import FOLDERS, run

SANITIZED = tuple(
    f"tests/ops/gpu/test_{name}.py" for name in ("gdn", "qsa", "hyper_connection", "gates", "moe", "ngram", "rows")
)
"""Every operation at small shapes; whole networks take the sanitizer too long."""

PARTS = ("compiled", "tests", "bench", "roofline", "memcheck", "racecheck", "replays")

ARMS = (
    "plain_decode_tps", "plain_decode_32k_tps", "window4_ms", "window8_ms", "prompt_4096_tps", "prompt_512_tps",
    "ttft_17_ms",
)  # fmt: skip
"""Of the benchmark: what is compiled for them differs."""


def tests(workers: int) -> dict[str, Any]:
    """All device tests."""
    spread = ["-n", str(workers)] if workers > 1 else []
    done = run([*FOLDERS, "-m", "gpu", *spread])
    return {"passed": _number(r"(\d+) passed", done.stdout), "failed": _failed(done)}


def sanitizer(tool: str) -> dict[str, Any]:
    """Errors a tool finds; kernels are compiled already, so time goes into running them."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"failed": 1, "missing": "compute-sanitizer is not on the PATH"}
    # Every allocation its own, or what lies behind a tensor belongs to torch's cache and nothing is noticed.
    done = run(
        [*SANITIZED, "-m", "gpu"], [program, "--tool", tool, "--error-exitcode", "9"],
        PYTORCH_NO_CUDA_MEMORY_CACHING="1",
    )  # fmt: skip
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", done.stdout)
    errors = int(summary[1]) if summary else None
    return {"errors": errors, "passed": _number(r"(\d+) passed", done.stdout), "failed": _failed(done)}


def replays(count: int) -> dict[str, Any]:
    """Windows in the released shapes, each replayed so often that a race would show."""
    done = run(["tests/gpu/test_gpu_replays.py", "-m", "gpu"], STRATA_TEST_REPLAYS=str(count))
    return {"replays": count, "passed": _number(r"(\d+) passed", done.stdout), "failed": _failed(done)}


def compiled(model: Path) -> None:
    """Run everything once that the benchmark runs, each arm in a process of its own."""
    _strata("strata.lab.synthetic", str(model), "--layers", "4")
    command = [sys.executable, "bench/gpu_resident.py", str(model), "--rounds", "0", "--tokens", "4", "--arms"]
    running = [subprocess.Popen([*command, arm], cwd=ROOT) for arm in ARMS]
    for process in running:
        process.wait()


def bench(model: Path, rounds: int) -> dict[str, Any]:
    """Figures, rounds and conditions."""
    out = model.with_suffix(".figures.json")
    command = [sys.executable, "bench/gpu_resident.py", str(model), "--rounds", str(rounds), "--json", str(out)]
    subprocess.run(command, cwd=ROOT, check=True)
    return json.loads(out.read_text())


def roofline(model: Path) -> dict[str, Any]:
    """Bytes, time and bandwidth by kernel."""
    out = model.with_suffix(".roofline.json")
    _strata("strata.lab.roofline", str(model), "--rows", "1", "4", "--depth", "0", "32768", "--json", str(out))
    return json.loads(out.read_text())


def _strata(module: str, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", module, *arguments], check=True, env=os.environ | {"PYTHONPATH": str(ROOT / "src")}
    )


def _number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _failed(done: subprocess.CompletedProcess[str]) -> int:
    """Tests that failed; at least 1 if the run as a whole did."""
    return _number(r"(\d+) failed", done.stdout) or int(done.returncode != 0)


def main() -> int:
    """Run all, or what is left of it after --without."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replays", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--without", nargs="*", default=[], choices=PARTS)
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-resident.json")
    given = parser.parse_args()
    wanted = [part for part in PARTS if part not in given.without]
    model = given.model or given.scratch / "strata-synthetic.gguf"
    document: dict[str, Any] = {}

    def together(*parts: tuple[str, Callable[[], Any]]) -> None:
        """Run parts side by side and write down what they found."""
        with ThreadPoolExecutor(len(parts)) as pool:
            running = {name: pool.submit(body) for name, body in parts if name in wanted}
        for name, future in running.items():
            error = future.exception()
            found = {"failed": 1, "error": str(error)} if error else future.result()
            if found is not None:
                document.update(found if name == "bench" and not error else {name: found})
        given.json.write_text(json.dumps(document, indent=1) + "\n")

    def written() -> None:
        if not model.exists():
            _strata("strata.lab.synthetic", str(model))

    if {"bench", "roofline"} & set(wanted):
        wanted.append("model")
    together(("model", written), ("compiled", partial(compiled, given.scratch / "strata-small.gguf")))
    together(("bench", partial(bench, model, given.rounds)))
    together(("roofline", partial(roofline, model)))
    together(
        ("tests", partial(tests, given.workers)), ("replays", partial(replays, given.replays)),
        ("memcheck", partial(sanitizer, "memcheck")), ("racecheck", partial(sanitizer, "racecheck")),
    )  # fmt: skip
    shown = {key: value for key, value in document.items() if key not in {"rounds", "roofline"}}
    print(json.dumps(shown, indent=1))
    return int(any(isinstance(one, dict) and (one.get("failed") or one.get("errors")) for one in document.values()))


if __name__ == "__main__":
    sys.exit(main())
