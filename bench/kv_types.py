"""What smaller types of the attention cache cost and save: Pebble with each against Pebble with float32.

    python bench/kv_types.py [--tokens 1000] [--json bench/results/kv_types.json]

The documents are those of `activations.py`; most are longer than the indexer's budget, so both forms of attention are
in it. Every token is predicted from the ones before it; of the two distributions the divergence KL(f32 || type) is
taken, in nats per token, and whether the likeliest token is the same; once on weights dequantised to float32, where
nothing else rounds, and once on stored ones, where a small change flips 8-bit codes of activations. Bytes are those of
everything that grows with a token. Milliseconds are the median of one-row windows behind the longest document, the
types taking turns.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools"), str(ROOT / "bench")]

if TYPE_CHECKING:
    from strata.model import Network

STEPS = 40  # windows timed of each type


def step_times(nets: "dict[str, Network]", ids: list[int]) -> dict[str, float]:
    """Median milliseconds of a window of one row behind `ids`, by type."""
    states = {name: net.new_state() for name, net in nets.items()}
    for name, net in nets.items():
        net.read(states[name], ids)
    taken: dict[str, list[float]] = {name: [] for name in nets}
    for step in range(STEPS + 1):
        for name in list(nets)[:: 1 if step % 2 else -1]:
            began = time.perf_counter()
            nets[name].window([(states[name], ids[:1])])
            if step:  # the first compiles and warms up
                taken[name].append((time.perf_counter() - began) * 1000)
    return {name: statistics.median(values) for name, values in taken.items()}


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1000, help="of each kind of document")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import torch

    from activations import compare, documents
    from strata import pebble
    from strata.gguf import open_model
    from strata.loading.cache import cached_as
    from strata.model import Network, load_config, load_weights
    from strata.model.kv import TYPES, token_bytes
    from strata.ops import bind
    from strata.text import Tokenizer

    torch.set_num_threads(1)
    directory = open_model(pebble.path("q8_0"))
    plain = load_config(directory.metadata)
    weights, exact = (load_weights(directory, plain, exact=exact) for exact in (False, True))
    configs = {name: cached_as(plain, name) for name in TYPES}
    nets = {name: Network(c, weights, bind("cpu", c)) for name, c in configs.items()}
    tokenizer = Tokenizer.from_metadata(directory.metadata)
    texts = {kind: documents(kind, tokenizer, arguments.tokens) for kind in ("counts", "sums", "tool calls", "prose")}
    with torch.inference_mode():
        times = step_times(nets, max((ids for found in texts.values() for ids in found), key=len))
    rows = []
    print(f"{'weights':8} {'type':5} {'documents':11} {'tokens':>6} {'KL mean':>9} {'99%':>9} {'max':>9} {'same':>8}")
    for held in ("float32", "stored"):
        for name in TYPES[1:]:
            pair = [replace(nets[kind], weights=exact) if held == "float32" else nets[kind] for kind in ("f32", name)]
            for kind, found in texts.items():
                kl, same = compare(*pair, found)
                row = {
                    "weights": held,
                    "type": name,
                    "documents": kind,
                    "tokens": len(kl),
                    "kl_mean": float(kl.mean()),
                    "kl_99": float(kl.quantile(0.99)),
                    "kl_max": float(kl.max()),
                    "same_likeliest": float(same.double().mean()),
                }
                rows.append(row)
                print(
                    f"{held:8} {name:5} {kind:11} {len(kl):6} {row['kl_mean']:9.2e} {row['kl_99']:9.2e} "
                    f"{row['kl_max']:9.2e} {row['same_likeliest']:8.2%}",
                    flush=True,
                )
    print(", ".join(f"{name}: {token_bytes(c):.0f} bytes, {times[name]:.2f} ms" for name, c in configs.items()))
    if arguments.json:
        facts = {
            "command": "python bench/kv_types.py " + " ".join(sys.argv[1:]),
            "model": "pebble, q8_0",
            "unit": "nats per token, KL(f32 cache || type)",
            "python": platform.python_version(),
            "bytes_a_token": {name: token_bytes(c) for name, c in configs.items()},
            "milliseconds_a_window": times,
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
