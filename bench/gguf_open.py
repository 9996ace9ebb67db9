"""What opening a model with a full-size vocabulary costs in time and memory, and what the vocabulary then adds.

The file has the released model's header: 248,320 tokens, 247,587 merges, 1,256 tensors. The tensors themselves are
short, as opening never reads them. Each measurement runs in a fresh process; the best and the worst of several are
kept. The limits of the acceptance test are 0.3 s and 60 MB.

    python bench/gguf_open.py                # table, and bench/results/gguf_open.json
    python bench/gguf_open.py --file X.gguf  # the same for a file of yours; keeps no result
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
RESULT = Path(__file__).parent / "results" / "gguf_open.json"
TOKENS, MERGES, TENSORS = 248_320, 247_587, 1256

CHILD = """
import json, re, sys, time, tracemalloc
import numpy
import strata.gguf
def peak():
    # Not getrusage: its peak is inherited from the process that started this one.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) / 1024
trace = sys.argv[2] == "trace"
if trace:
    tracemalloc.start()
before = peak()
start = time.perf_counter()
model = strata.gguf.open_model(sys.argv[1])
opened = time.perf_counter() - start
result = {"open_s": opened, "imported_mib": before, "opened_mib": peak()}
if trace:
    result["open_python_mib"] = tracemalloc.get_traced_memory()[1] / 2**20
start = time.perf_counter()
for key in ("tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"):
    model.metadata[key]
result |= {"vocabulary_s": time.perf_counter() - start, "vocabulary_mib": peak()}
print(json.dumps(result))
"""


def write_file(path: Path) -> None:
    """A file with the released model's key and tensor counts."""
    from strata.formats import by_name
    from strata.gguf import TensorData, write_model

    rng = np.random.default_rng(0)
    letters = "".join(rng.choice(list("abcdefghijklmnopqrstuvwxyzĠĊéßм的"), 1 << 16))
    places = zip(rng.integers(0, (1 << 16) - 14, TOKENS), rng.integers(1, 14, TOKENS), strict=True)
    tokens = [letters[start : start + length] for start, length in places]
    merges = [f"{tokens[one]} {tokens[other]}" for one, other in rng.integers(0, TOKENS, (MERGES, 2))]
    metadata = {"general.architecture": "qwen4exp", "qwen4exp.ple.layer_multipliers": np.array([1, 2, 3], np.uint64)}
    metadata |= {f"qwen4exp.key_{index}": index for index in range(45)}
    metadata |= {
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": np.ones(TOKENS, np.int32),
        "tokenizer.ggml.merges": merges,
        "tokenizer.chat_template": "x" * 8000,
    }
    kind = by_name("F32")
    write_model(
        path,
        metadata,
        [
            TensorData(f"blk.{i // 26}.tensor_{i % 26}.weight", (4,), kind, np.zeros(16, np.uint8))
            for i in range(TENSORS)
        ],
    )


def measure(path: Path, *, trace: bool) -> dict[str, float]:
    """One fresh process."""
    command = [sys.executable, "-c", CHILD, str(path), "trace" if trace else "plain"]
    environment = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--file", type=Path)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--keep", choices=["yes", "no"], default="yes", help="write bench/results/gguf_open.json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.file or Path(folder) / "vocabulary.gguf"
        if not arguments.file:
            sys.path.insert(0, str(ROOT / "src"))
            write_file(path)
        runs = [measure(path, trace=False) for _ in range(arguments.runs)]
        load = os.getloadavg()[0]
        traced = measure(path, trace=True)  # slower and larger than life, so only its own number is used
        size = path.stat().st_size
    names = ("open_s", "vocabulary_s", "imported_mib", "opened_mib", "vocabulary_mib")
    spread = {
        name: {"best": round(min(run[name] for run in runs), 4), "worst": round(max(run[name] for run in runs), 4)}
        for name in names
    }
    result = {
        "file_bytes": size,
        "runs": arguments.runs,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "load_average": round(load, 1),  # of other work; it lengthens the times
        "open_python_mib": round(traced["open_python_mib"], 3),
        **spread,
    }
    print(f"{'':24s}{'best':>10s}{'worst':>10s}")
    for name, ends in spread.items():
        print(f"{name:24s}{ends['best']:10.3f}{ends['worst']:10.3f}")
    print(f"{'open_python_mib':24s}{result['open_python_mib']:10.3f}")
    print(json.dumps(result))
    if not arguments.file and arguments.keep == "yes":
        RESULT.parent.mkdir(exist_ok=True)
        RESULT.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
