"""What activations of 8 bits cost: Pebble on stored matrices against the same matrices dequantised to float32.

    python bench/activations.py [--tokens 1000] [--json bench/results/activations.json]

Documents are held out of Pebble's training: counts, sums and tool calls with their answers, and prose it has never seen
(this repository's pages). Every token is predicted from the ones before it by both; of the two distributions the
divergence KL(float32 || stored) is taken, in nats per token, and whether the likeliest token is the same.
"""

import argparse
import json
import platform
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools")]

if TYPE_CHECKING:
    from torch import Tensor

    from strata.model import Network
    from strata.text import Tokenizer

LONGEST = 400  # tokens of a document


def documents(kind: str, tokenizer: "Tokenizer", tokens: int) -> list[list[int]]:
    """Token ids of held-out documents of a kind, ``tokens`` in all or a little more."""
    from pebble.data import counting, sums, tools
    from pebble.data.dialogue import Conversation, Template

    template, rng, found = Template(), random.Random(kind), []
    pages = "\n".join(path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
    prose = tokenizer.encode(pages)
    while sum(map(len, found)) < tokens:
        thinking = rng.random() < 0.5
        if kind == "prose":
            at = rng.randrange(len(prose) - LONGEST)
            found.append(prose[at : at + LONGEST])
            continue
        messages, offered = {
            "counts": lambda: (counting.test(rng, 40), []),
            "sums": lambda: (sums.test(rng), []),
            "tool calls": lambda: tools.test(rng),
        }[kind]()
        text = template.text(Conversation(messages, offered, thinking=thinking))
        found.append(tokenizer.encode(text, special=True)[:LONGEST])
    return found


def compare(exact: "Network", stored: "Network", texts: list[list[int]]) -> "tuple[Tensor, Tensor]":
    """Divergence of every token, and whether the likeliest agrees."""
    import torch

    divergences, agree = [], []
    with torch.inference_mode():
        for ids in texts:
            p, q = (net.logits(net.read(net.new_state(), ids)).double().log_softmax(-1) for net in (exact, stored))
            divergences.append((p.exp() * (p - q)).sum(-1))
            agree.append(p.argmax(-1) == q.argmax(-1))
    return torch.cat(divergences), torch.cat(agree)


def main() -> None:
    """Measure, print a table, keep the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1000, help="of each kind of document")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()

    import torch

    from strata import pebble
    from strata.gguf import open_model
    from strata.model import Network, load_config, load_weights
    from strata.ops import bind
    from strata.text import Tokenizer

    torch.set_num_threads(1)  # the products are small: more threads only wait for each other
    rows = []
    print(f"{'file':6} {'documents':11} {'tokens':>6} {'KL mean':>9} {'99%':>9} {'max':>9} {'same likeliest':>14}")
    for variant in pebble.VARIANTS:
        directory = open_model(pebble.path(variant))
        config = load_config(directory.metadata)
        nets = [
            Network(config, load_weights(directory, config, exact=exact), bind("cpu", config))
            for exact in (True, False)
        ]
        tokenizer = Tokenizer.from_metadata(directory.metadata)
        for kind in ("counts", "sums", "tool calls", "prose"):
            kl, same = compare(*nets, documents(kind, tokenizer, arguments.tokens))
            row = {
                "file": variant,
                "documents": kind,
                "tokens": len(kl),
                "kl_mean": float(kl.mean()),
                "kl_99": float(kl.quantile(0.99)),
                "kl_max": float(kl.max()),
                "same_likeliest": float(same.double().mean()),
            }
            rows.append(row)
            print(
                f"{variant:6} {kind:11} {len(kl):6} {row['kl_mean']:9.2e} {row['kl_99']:9.2e} {row['kl_max']:9.2e} "
                f"{row['same_likeliest']:14.2%}",
                flush=True,
            )
    if arguments.json:
        facts = {
            "command": "python bench/activations.py " + " ".join(sys.argv[1:]),
            "unit": "nats per token, KL(float32 weights and activations || stored weights)",
            "python": platform.python_version(),
            "rows": rows,
        }
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
