"""Damage a small GGUF file in many ways and read everything in it; print what happened.

Only two outcomes are right: the file is read, or refused with an error of the reader's own. Anything else, a time above
two seconds or memory out of proportion to the file is a failure; the damaged file is kept and the exit status is 1.

    python tools/fuzz_gguf.py --files 20000 --seed 1
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
import tracemalloc
import warnings
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support.ggufs import (  # the path is set above
    MEMORY_CONSTANT,
    MEMORY_FACTOR,
    SECONDS,
    edited,
    random_edits,
    read_everything,
    sample,
    warm_up,
)


def run(files: int, seed: int, keep: Path) -> tuple[Counter[str], dict[str, float]]:
    """Outcomes by name, and the extremes of time and memory."""
    rng, sound = random.Random(seed), bytes(sample().data)
    outcomes: Counter[str] = Counter()
    worst = {"seconds": 0.0, "bytes of memory above the constant, per byte of file": 0.0}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gguf"
        warm_up(Path(folder))
        for number in range(files):
            data = edited(sound, random_edits(rng))
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            tracemalloc.start()
            start = time.perf_counter()
            try:
                outcome = read_everything(path)
            except Exception:  # noqa: BLE001  # whatever it is, it is a finding to report
                traceback.print_exc()
                outcome = "ESCAPED"
            seconds = time.perf_counter() - start
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            if seconds > SECONDS:
                outcome = "SLOW"
            if peak > MEMORY_FACTOR * len(data) + MEMORY_CONSTANT:
                outcome = "TOO MUCH MEMORY"
            if outcome.isupper():
                (keep / f"fuzz-{seed}-{number}.gguf").write_bytes(data)
            outcomes[outcome] += 1
            worst["seconds"] = max(worst["seconds"], seconds)
            ratio = max(0, peak - MEMORY_CONSTANT) / max(1, len(data))
            worst[list(worst)[1]] = max(worst[list(worst)[1]], ratio)
    return outcomes, worst


def main() -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path(), help="folder for files that failed")
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    outcomes, worst = run(arguments.files, arguments.seed, arguments.keep)
    for name, count in outcomes.most_common():
        print(f"{name:20s}{count:10d}")
    for name, value in worst.items():
        print(f"worst {name}: {value:.3f}")
    return int(any(name.isupper() for name in outcomes))


if __name__ == "__main__":
    sys.exit(main())
