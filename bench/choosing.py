"""Time of choosing one token at the real vocabulary, by settings and by shape of the distribution, and of a grammar.

    python bench/choosing.py [--repeats 40] [--json bench/results/choosing.json]

Two distributions: like words of a text (probability falls as a power of the rank), and nearly flat, which is the
worst case, which no trained model gives. The grammar's vocabulary is made of pieces of Python's standard library.
"""

import argparse
import json
import os
import platform
import re
import statistics
import sys
import sysconfig
import time
from itertools import count, islice
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

import numpy as np

from strata.engine import Chooser, Sampling
from strata.text.grammar import Grammar, Grammars

PENALTIES = {"repetition_penalty": 1.1, "frequency_penalty": 0.5, "presence_penalty": 0.5}
ALL = {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 0.95, **PENALTIES}
ARMS = {
    "greedy": {},
    "greedy, penalties": PENALTIES,
    "greedy, 20 log-probabilities": {"logprobs": 20},
    "temperature": {"temperature": 0.7},
    "top_k 40": {"temperature": 0.7, "top_k": 40},
    "top_p 0.95": {"temperature": 0.7, "top_p": 0.95},
    "top_k 40, top_p 0.95, min_p 0.05": {"temperature": 0.7, "top_k": 40, "top_p": 0.95, "min_p": 0.05},
    "typical_p 0.95": {"temperature": 0.7, "typical_p": 0.95},
    "everything": ALL | {"logprobs": 20, "logit_bias": dict.fromkeys(range(300), 1.0)},
}
FORM = {
    "type": "json_schema",
    "json_schema": {
        "schema": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "pages": {"type": "integer"}, "open": {"type": "boolean"}},
            "required": ["title", "pages", "open"],
            "additionalProperties": False,
        }
    },
}
ANSWER = '{"title": "A long walk through the hills behind the old town", "pages": 1234, "open": true}'


class Pieces:
    """A vocabulary of `size` entries: bytes, pieces of source text, and made-up ones; the last 128 are special."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.eos_ids = (size - 128, size - 127)
        self.control_ids, self.user_defined_ids = frozenset(range(size - 128, size - 64)), frozenset[int]()
        found = dict.fromkeys(bytes([byte]) for byte in range(256))
        for path in sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py")):
            found.update(
                dict.fromkeys(re.findall(rb" ?[A-Za-z]{1,24}| ?[^\sA-Za-z0-9]{1,12}|\s{1,24}", path.read_bytes()))
            )
        found.update(dict.fromkeys(islice((b" x%d" % n for n in count()), max(0, size - 128 - len(found)))))
        self._texts = list(found)[: size - 128]
        self._ids = {text: number for number, text in enumerate(self._texts)}

    def token_bytes(self, token: int) -> bytes:
        """As Tokenizer.token_bytes."""
        return self._texts[token] if token < len(self._texts) else b"<|%d|>" % token

    def encode(self, text: str) -> list[int]:
        """The longest entry at each place."""
        data, ids = text.encode(), []
        while data:
            best = next(data[:n] for n in range(min(len(data), 25), 0, -1) if data[:n] in self._ids)
            ids.append(self._ids[best])
            data = data[len(best) :]
        return ids


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--vocabulary", type=int, default=248_320)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    V, rng = arguments.vocabulary, np.random.default_rng(0)
    shapes = {
        "text": lambda: rng.permutation(-1.5 * np.log(np.arange(V) + 1.0)) + rng.standard_normal(V) * 0.1,
        "flat": lambda: rng.standard_normal(V) * 0.1,
    }
    rows = []
    for shape, make in shapes.items():
        logits = [make().astype(np.float32)[None] for _ in range(8)]
        for name, settings in ARMS.items():
            options = dict(settings)
            logprobs = options.pop("logprobs", None)
            chooser = Chooser(
                Sampling(**options), vocabulary=V, banned=range(V - 64, V), stop_ids=[V - 128], logprobs=logprobs,
                prompt=rng.integers(0, V, 4096).tolist(),
            )  # fmt: skip
            times = []
            for position in range(arguments.repeats):
                began = time.perf_counter()
                chooser.verify(logits[position % 8], (), position)
                times.append((time.perf_counter() - began) * 1e3)
            rows.append({"what": name, "distribution": shape, "ms": round(statistics.median(times), 2)})
    rows += grammar(V, arguments.repeats)
    for row in rows:
        print(f"{row['what']:36} {row['distribution']:5} {row['ms']:8.3f} ms")
    if arguments.json:
        conditions = {
            "command": f"python bench/choosing.py --repeats {arguments.repeats} --json {arguments.json}",
            "vocabulary": V,
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
            "versions": {"python": platform.python_version(), "numpy": np.__version__},
        }
        arguments.json.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


def grammar(V: int, repeats: int) -> list[dict[str, object]]:
    """Times of a JSON schema: building for the vocabulary, compiling, and a token's mask, advance and forced tokens."""
    pieces = Pieces(V)
    began = time.perf_counter()
    grammars = Grammars(pieces, V)  # type: ignore[arg-type]
    form = Grammar.of(FORM)
    assert form is not None
    grammars.constraint(form)
    times: dict[str, list[float]] = {"mask": [], "advance": [], "forced": [], "compile": []}
    first = (time.perf_counter() - began) * 1e3
    for _ in range(max(1, repeats // 8)):
        began = time.perf_counter()
        constraint = grammars.constraint(form)
        times["compile"].append(time.perf_counter() - began)
        for token in pieces.encode(ANSWER):
            for name, call in (("forced", constraint.forced), ("mask", constraint.allowed)):
                began = time.perf_counter()
                call()
                times[name].append(time.perf_counter() - began)
            began = time.perf_counter()
            constraint.advance(token)
            times["advance"].append(time.perf_counter() - began)
        assert constraint.finished
    rows: list[dict[str, object]] = [{"what": "grammar, tree of all tokens", "distribution": "", "ms": round(first, 1)}]
    for name, values in times.items():
        for label, value in ((name, statistics.median(values)), (f"{name}, slowest", max(values))):
            rows.append({"what": f"grammar, {label}", "distribution": "", "ms": round(value * 1e3, 3)})
    return rows


if __name__ == "__main__":
    main()
