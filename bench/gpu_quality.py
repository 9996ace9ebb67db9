"""What prompts read on a GPU cost: Pebble there against float32 on the CPU.

    python bench/gpu_quality.py --write documents.json        where the tokenizer is
    python bench/gpu_quality.py --documents documents.json [--json FILE]

Every token of held-out documents is predicted from the ones before it, which a prompt pass has read; the predictions
are made from the residuals in float32, so that only the pass shows: KL(float32 || GPU) in nats per token, and whether
the likeliest token is the same. Beside it the same with the GPU's own head, which takes activations of eight bits.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools"), str(ROOT / "bench")]

KINDS = ("counts", "sums", "tool calls", "prose")


def write(file: Path, tokens: int) -> None:
    """Token ids of documents of each kind."""
    from activations import documents
    from strata import pebble
    from strata.gguf import open_model
    from strata.text import Tokenizer

    tokenizer = Tokenizer.from_metadata(open_model(pebble.path(pebble.VARIANTS[0])).metadata)
    file.write_text(json.dumps({kind: documents(kind, tokenizer, tokens) for kind in KINDS}))


def measure(file: Path) -> list[dict[str, object]]:
    """One row for each of Pebble's files and kind of document."""
    from dataclasses import replace

    import torch

    from strata import pebble
    from strata.gguf import open_model
    from strata.model import Network, load_config, load_weights
    from strata.ops import bind
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import Pool
    from strata.ops.gpu.upload import Upload

    texts, device, rows = json.loads(file.read_text()), torch.device("cuda"), []
    names = "KL mean", "99%", "max", "likeliest", "8-bit head"
    print(f"{'file':6} {'documents':11} {'tokens':>6}", *(f"{name:>10}" for name in names))
    for variant in pebble.VARIANTS:
        directory = open_model(pebble.path(variant))
        config = replace(load_config(directory.metadata), mtp=False)
        exact = Network(config, load_weights(directory, config, exact=True), bind("cpu", config))
        pool = Pool(config, device, slots=2, cells=2048)
        ours = Network(config, Upload(device).all(load_weights(directory, config)), GpuOps(config, pool, device))
        for kind in KINDS:
            parts: list[list[torch.Tensor]] = [[], [], []]
            for ids in texts[kind]:
                expected, residual = exact.read(exact.new_state(), ids), ours.read(ours.new_state(), ids)
                p = exact.logits(expected).double().log_softmax(-1)
                q = exact.logits(residual.cpu()).double().log_softmax(-1)
                r = ours.logits(residual).cpu().double().log_softmax(-1)
                parts[0].append((p.exp() * (p - q)).sum(-1))
                parts[1].append(p.argmax(-1) == q.argmax(-1))
                parts[2].append((p.exp() * (p - r)).sum(-1))
            kl, same, whole = (torch.cat(part).double() for part in parts)
            row = {
                "file": variant, "documents": kind, "tokens": len(kl), "kl_mean": float(kl.mean()),
                "kl_99": float(kl.quantile(0.99)), "kl_max": float(kl.max()), "same_likeliest": float(same.mean()),
                "kl_mean_with_head": float(whole.mean()),
            }  # fmt: skip
            rows.append(row)
            print(
                f"{variant:6} {kind:11} {len(kl):6} {row['kl_mean']:9.2e} {row['kl_99']:9.2e} {row['kl_max']:9.2e} "
                f"{row['same_likeliest']:9.2%} {row['kl_mean_with_head']:10.2e}",
                flush=True,
            )
    return rows


def main() -> None:
    """Write documents, or measure on them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--tokens", type=int, default=1000, help="of each kind of document")
    parser.add_argument("--documents", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.write:
        write(given.write, given.tokens)
        return
    import torch

    with torch.inference_mode():
        rows = measure(given.documents)
    if given.json:
        facts = {"unit": "nats per token, KL(float32 || prompt pass on the GPU)", "rows": rows}
        given.json.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
