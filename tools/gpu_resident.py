"""Everything that is claimed of a GPU with all weights in its memory, from a bare checkout.

    python tools/gpu_resident.py [--only bench roofline] [--within 500] [--json bench/results/h200-resident.json]

1. `compiled`: kernels are compiled by several processes at once, on a model of four layers, while a file of random
weights in the released shapes (`python -m strata.lab.synthetic`, 54 GiB) is written to --scratch, if no model is given;
2. `bench` (bench/gpu_resident.py) and the `roofline`, alone on the machine; 3. side by side the `tests` that the marker
`gpu` names, natively, compute-sanitizer's `memcheck` and `racecheck` over those of every operation, and 10,000
`replays` of windows without a differing byte.

--only and --without choose parts, and several runs add to one file: each part's results replace those it had, the
others stay, `sessions` has the conditions of every run. Results are written as they come. What is not done --within so
many seconds is ended and counts as failed; a part that cannot begin any more keeps what it had. Needs torch, Triton,
NumPy, Numba and pytest, no installed project. Exits with 1 if one of the parts failed or did not begin.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from figures import record, resident
from figures.conditions import conditions
from gpu_tests import FOLDERS, run

SANITIZED = tuple(
    f"tests/ops/gpu/test_{name}.py" for name in ("gdn", "qsa", "hyper_connection", "gates", "moe", "ngram", "rows")
)
"""Every operation at small shapes; whole networks take the sanitizer too long."""

PARTS = ("compiled", "bench", "roofline", "tests", "memcheck", "racecheck", "replays")

TOGETHER = (("model", "compiled"), ("bench",), ("roofline",), ("tests", "replays", "memcheck", "racecheck"))
"""Parts that run side by side; only what is no measurement has company."""

LEAST = 10.0
"""Seconds without which a part is not begun."""

ARMS = (
    "plain_decode_tps", "plain_decode_32k_tps", "window4_ms", "window8_ms", "prompt_4096_tps", "prompt_512_tps",
    "ttft_17_ms",
)  # fmt: skip
"""Of the benchmark: what is compiled for them differs."""


class Clock:
    """Seconds that are left of those for everything."""

    def __init__(self, within: float) -> None:
        self._end = time.monotonic() + within

    @property
    def left(self) -> float:
        """Until the end."""
        return max(0.0, self._end - time.monotonic())

    def limit(self) -> list[str]:
        """What stands before a command that ends with the time."""
        return ["timeout", "-k", "5", f"{max(1.0, self.left):.0f}"]


def tests(clock: Clock, workers: int) -> dict[str, Any]:
    """All device tests."""
    spread = ["-n", str(workers)] if workers > 1 else []
    done = run([*FOLDERS, "-m", "gpu", *spread], clock.limit())
    return {"passed": _number(r"(\d+) passed", done.stdout), "failed": _failed(done)}


def sanitizer(clock: Clock, tool: str) -> dict[str, Any]:
    """Errors a tool finds; kernels are compiled already, so time goes into running them."""
    program = shutil.which("compute-sanitizer")
    if program is None:
        return {"failed": 1, "missing": "compute-sanitizer is not on the PATH"}
    # Every allocation its own, or what lies behind a tensor belongs to torch's cache and nothing is noticed.
    done = run(
        [*SANITIZED, "-m", "gpu"], [*clock.limit(), program, "--tool", tool, "--error-exitcode", "9"],
        PYTORCH_NO_CUDA_MEMORY_CACHING="1",
    )  # fmt: skip
    summary = re.search(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", done.stdout)
    errors = int(summary[1]) if summary else None
    return {"errors": errors, "passed": _number(r"(\d+) passed", done.stdout), "failed": _failed(done)}


def replays(clock: Clock, count: int) -> dict[str, Any]:
    """Windows in the released shapes, each replayed so often that a race would show."""
    done = run(["tests/gpu/test_gpu_replays.py", "-m", "gpu"], clock.limit(), STRATA_TEST_REPLAYS=str(count))
    return {"replays": count, "passed": _number(r"(\d+) passed", done.stdout), "failed": _failed(done)}


def written(clock: Clock, model: Path) -> dict[str, Any]:
    """The file of random weights; none where it was not written to its end."""
    try:
        _strata(clock, "strata.lab.synthetic", str(model))
    except BaseException:
        model.unlink(missing_ok=True)
        raise
    return {}


def compiled(clock: Clock, model: Path) -> dict[str, Any]:
    """Run everything once that the benchmark runs, each arm in a process of its own."""
    _strata(clock, "strata.lab.synthetic", str(model), "--layers", "4")
    command = [sys.executable, "bench/gpu_resident.py", str(model), "--rounds", "0", "--tokens", "4", "--arms"]
    running = [subprocess.Popen([*clock.limit(), *command, arm], cwd=ROOT) for arm in ARMS]
    return {"failed": sum(process.wait() != 0 for process in running)}


def bench(clock: Clock, model: Path, rounds: int) -> dict[str, Any]:
    """Figures, rounds and conditions."""
    out = model.with_suffix(".figures.json")
    command = [sys.executable, "bench/gpu_resident.py", str(model), "--rounds", str(rounds), "--json", str(out)]
    subprocess.run([*clock.limit(), *command], cwd=ROOT, check=True)
    return json.loads(out.read_text())


def roofline(clock: Clock, model: Path) -> dict[str, Any]:
    """Bytes, time and bandwidth by kernel."""
    out = model.with_suffix(".roofline.json")
    _strata(clock, "strata.lab.roofline", str(model), "--rows", "1", "4", "--depth", "0", "32768", "--json", str(out))
    return json.loads(out.read_text())


def _strata(clock: Clock, module: str, *arguments: str) -> None:
    subprocess.run(
        [*clock.limit(), sys.executable, "-m", module, *arguments],
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
    )


def _number(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def _failed(done: subprocess.CompletedProcess[str]) -> int:
    """Tests that failed; at least 1 if the run as a whole did."""
    return _number(r"(\d+) failed", done.stdout) or int(done.returncode != 0)


def together(bodies: dict[str, Callable[[], dict[str, Any]]], path: Path, clock: Clock, when: str) -> bool:
    """Run parts side by side, and write down what each has found when it has; False if there is no time to begin."""
    if clock.left < LEAST:
        return False
    with ThreadPoolExecutor(len(bodies)) as pool:
        running = {pool.submit(body): name for name, body in bodies.items()}
        for future in as_completed(running):
            error = future.exception()
            found = {"failed": 1, "error": str(error)} if error else future.result()
            record.write(path, resident.merged(record.read(path), running[future], found, when))
    return True


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--replays", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--only", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--without", nargs="*", default=[], choices=PARTS)
    parser.add_argument("--within", type=float, default=3600.0, help="seconds for everything")
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-resident.json")
    given = parser.parse_args()
    wanted = [part for part in PARTS if part in given.only and part not in given.without]
    model = given.model or given.scratch / "strata-synthetic.gguf"
    clock = Clock(given.within)
    session = conditions({"model": model.parent}) | {"parts": wanted}
    record.write(given.json, resident.begun(record.read(given.json), session))

    bodies: dict[str, Callable[[], dict[str, Any]]] = {
        "model": partial(written, clock, model),
        "compiled": partial(compiled, clock, given.scratch / "strata-small.gguf"),
        "bench": partial(bench, clock, model, given.rounds),
        "roofline": partial(roofline, clock, model),
        "tests": partial(tests, clock, given.workers),
        "replays": partial(replays, clock, given.replays),
        "memcheck": partial(sanitizer, clock, "memcheck"),
        "racecheck": partial(sanitizer, clock, "racecheck"),
    }
    if {"bench", "roofline"} & set(wanted) and not model.exists():
        wanted.insert(0, "model")
    late = []
    for group in TOGETHER:
        chosen = {name: bodies[name] for name in group if name in wanted}
        if chosen and not together(chosen, given.json, clock, session["when"]):
            late += chosen
    document = record.read(given.json)
    shown = {key: value for key, value in document.items() if key not in {"rounds", "roofline", "sessions"}}
    print(json.dumps(shown, indent=1))
    failed = resident.failures(document, wanted)
    print(f"failed: {', '.join(failed) or 'nothing'}; not begun: {', '.join(late) or 'nothing'}")
    return int(bool(failed or late))


if __name__ == "__main__":
    sys.exit(main())
