"""Break the model's details one by one and see that a test turns red.

    python tools/mutate.py                # all of them; writes the table in docs/mutations.md
    python tools/mutate.py rope YaRN      # those whose name holds one of these words; writes nothing

Exit status 1 if a mutation survives or cannot be applied.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from mutations import MUTATIONS, Mutation

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "mutations.md"
LONGEST = 900.0
"""Seconds of tests; the longest that pass take less than two minutes."""

START, END = "<!-- table: python tools/mutate.py -->", "<!-- end of table -->"


@cache
def green(tests: tuple[str, ...]) -> bool:
    """Whether the tests pass on an unchanged copy; else their being red would say nothing."""
    return attempt(Mutation("", "", "", "", tests)) == "SURVIVED"


def attempt(mutation: Mutation) -> str:
    """Return "red" if a test noticed, else what went wrong; without a file nothing is changed.

    A process that died of it is red, too, and so is one that never ends. Numba keeps what it compiled by the caller's
    file and knows nothing of other files that are compiled into it: where one of those is changed, it keeps what it
    compiles for itself.
    """
    environment = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        if mutation.file:
            target = source / "strata" / mutation.file
            text = target.read_text()
            if text.count(mutation.old) != 1:
                return f"not applied: found {text.count(mutation.old)} times"
            if not green(mutation.tests):
                return "its tests are red without it"
            target.write_text(text.replace(mutation.old, mutation.new))
            if "numba" in text:
                environment["NUMBA_CACHE_DIR"] = f"{folder}/numba"
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:randomly", "-p", "no:xdist"),
            *("-o", f"pythonpath={source} tests", "--durations=0", *mutation.tests),
        ]
        environment["PYTHONPATH"] = str(source)
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return "red"
        if done.returncode == 1 or done.returncode < 0:
            return "red"
        return "SURVIVED" if done.returncode == 0 else f"pytest stopped with {done.returncode}: {done.stdout[-300:]}"


def main(words: list[str]) -> int:
    """Try the mutations whose name holds one of `words`; all without any."""
    chosen = [m for m in MUTATIONS if not words or any(w.lower() in m.name.lower() for w in words)]
    rows, bad, began = [], 0, time.monotonic()
    for mutation in chosen:
        outcome = attempt(mutation)
        bad += outcome != "red"
        rows.append(f"| {mutation.name} | `{mutation.file}` | {outcome} |")
        print(f"{outcome:10} {mutation.name}", flush=True)
    print(f"{len(chosen)} mutations, {bad} not red, {time.monotonic() - began:.0f} s")
    if not words:
        table = "\n".join(["| detail | file | outcome |", "|---|---|---|", *rows])
        page = PAGE.read_text()
        before, after = page[: page.index(START) + len(START)], page[page.index(END) :]
        summary = f"{len(chosen)} mutations, {len(chosen) - bad} red."
        PAGE.write_text(f"{before}\n\n{summary}\n\n{table}\n\n{after}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
