"""Pebble on one device: the exam, held-out prose and greedy answers, and how far another device's run is from it.

    PYTHONPATH=src:tools python -m pebble questions --stock STOCK --count 12 --out questions.json
    python tools/gpu_pebble.py --questions questions.json --device cpu --save cpu.npz
    python tools/gpu_pebble.py --questions questions.json --device cuda --against cpu.npz --json pebble.json

Needs torch, NumPy and Numba, and Triton for a GPU; no tokenizer, no installed project.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

from strata.engine import Drafting, Finish, Request, Sampling, Token, generate
from strata.gguf import open_model
from strata.loading import gpu
from strata.loading.cache import cached_as
from strata.model import Network, load_config, load_weights
from strata.ops import bind, workers
from strata.session.options import Options
from strata.session.scheduler import Scheduler

FILES = {"q8_0": "pebble-q8_0.gguf", "iq3": "pebble-iq3.gguf"}
TOP = 64
"""Of a row, the likeliest that are kept."""

KEPT = 40
"""Rows of logits kept of a document, for the distance between devices."""


def load(name: str, device: str, *, exact: bool) -> Network:
    """A bundled file on a device; with `exact`, its matrices in float32."""
    directory = open_model(ROOT / "src" / "strata" / "pebble" / FILES[name])
    config = cached_as(load_config(directory.metadata), None)
    weights = load_weights(directory, config, exact=exact)
    if device == "cpu":
        torch.set_num_threads(1)  # the products are small: more threads only wait for each other
        workers.use((None,))
        return Network(config, weights, bind("cpu", config), drafts=True)
    card = gpu.find(device)
    assert card is not None, "no GPU"
    network, placed = gpu.network(card, weights, config, gpu.plan_for(card, directory, config, 8), None)
    print(placed, flush=True)
    return Network(network.config, network.weights, network.ops, drafts=True)


def mark(network: Network, questions: dict[str, Any]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Exact documents by ability, as `pebble.exam.engine.mark` counts them, and rows of logits."""
    plain = Network(network.config, network.weights, network.ops)
    found, rows = {}, []
    for ability in questions["abilities"]:
        exact = right = total = 0
        for document in ability["documents"]:
            ids, answer = document["ids"], np.array(document["answer"])
            residual = plain.read(plain.new_state(), ids[: answer[-1]])
            logits = plain.logits(residual[torch.from_numpy(answer - 1).to(residual.device)]).float().cpu().numpy()
            hits = logits.argmax(1) == np.array(ids)[answer]
            exact, right, total = exact + int(hits.all()), right + int(hits.sum()), total + len(hits)
            if len(rows) % 3 == 0 or len(ids) < 400:
                rows.append(logits[:KEPT])
            else:
                rows.append(logits[:4])
        found[ability["name"]] = [exact, len(ability["documents"]), right, total]
    return found, rows


def prose(network: Network, ids: list[int]) -> tuple[float, np.ndarray]:
    """Nats a token of held-out text, and its logits."""
    plain = Network(network.config, network.weights, network.ops)
    logits = plain.logits(plain.read(plain.new_state(), ids[:-1])).float().cpu()
    losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]))
    return float(losses), logits[-200:].numpy()


def greedy(
    network: Network, prompts: list[list[int]], drafting: Drafting
) -> tuple[list[list[int]], list[float], float]:
    """Greedy answers, their log-probabilities, and the share of guesses that were right."""
    texts, certain, drafted, accepted = [], [], 0, 0
    for prompt in prompts:
        events = list(
            generate(
                network, network.new_state(), prompt, Sampling(), max_tokens=80, drafting=drafting, stop_ids=[2536]
            )
        )
        texts.append([event.id for event in events if isinstance(event, Token)])
        certain += [event.logprob for event in events if isinstance(event, Token)]
        end = events[-1]
        assert isinstance(end, Finish)
        drafted, accepted = drafted + sum(end.usage.drafted.values()), accepted + sum(end.usage.accepted.values())
    return texts, certain, accepted / max(1, drafted)


def together(network: Network, prompts: list[list[int]], alone: list[list[int]], folder: Path) -> dict[str, bool]:
    """The same answers among others, gone on from memory, from files, and set aside for want of room."""
    result = {}
    for name, ram in (("at once", 1 << 30), ("from files", 0)):
        scheduler = Scheduler(
            network, Options(same_forms=False, ram=ram, folder=folder / name, reserve=0, rows=64, step=64)
        )
        texts: dict[str, list[int]] = {}
        for turn in range(2):
            for i, prompt in enumerate(prompts):
                drafting = Drafting(3, head=True, lookup=i % 2 == 0)
                scheduler.submit(
                    Request(f"{turn} {i}", tuple(prompt), Sampling(), frozenset([2536]), 80, drafting, exact=True)
                )
            while not scheduler.idle:
                for who, event in scheduler.tick():
                    if isinstance(event, Token):
                        texts.setdefault(who, []).append(event.id)
        result[name] = all(texts[f"{turn} {i}"] == text for turn in range(2) for i, text in enumerate(alone))
        result[f"{name}: gone on"] = scheduler.stats().cached_tokens > 0
        scheduler.close()
    return result


def likeliest(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Of rows of logits what a comparison needs: the likeliest ids and their log-probabilities."""
    values, ids = torch.from_numpy(rows).double().log_softmax(-1).topk(TOP)
    return {"ids": ids.numpy().astype(np.int16), "logp": values.numpy().astype(np.float32)}


def divergence(ours: np.ndarray, ids: np.ndarray, logp: np.ndarray) -> tuple[float, float]:
    """Mean and largest KL of rows of logits from another's likeliest ids, all others being one event; in nats."""
    a = torch.from_numpy(logp).double()
    b = torch.from_numpy(ours).double().log_softmax(-1).gather(1, torch.from_numpy(ids).long())
    a, b = (torch.cat((x, torch.log1p(-x.exp().sum(-1, keepdim=True).clamp(max=1 - 1e-9))), -1) for x in (a, b))
    kl = (a.exp() * (a - b)).sum(-1)
    return float(kl.mean()), float(kl.max())


def examine(name: str, given: argparse.Namespace, questions: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """One file: figures, and arrays for another device."""
    began = time.monotonic()
    network = load(name, given.device, exact=given.exact)
    figures: dict[str, Any] = {"load_s": round(time.monotonic() - began, 2)}
    began = time.monotonic()
    figures["abilities"], rows = mark(network, questions)
    figures["exam_s"] = round(time.monotonic() - began, 2)
    figures["prose_nats"], last = prose(network, questions["prose"])
    began = time.monotonic()
    texts, certain, _ = greedy(network, questions["prompts"], Drafting())
    figures["plain_s"] = round(time.monotonic() - began, 2)
    arrays: dict[str, Any] = {"rows": np.concatenate([*rows, last]), "texts": json.dumps(texts)}
    arrays["certain"] = np.array(certain)
    if not given.exact:
        began = time.monotonic()
        drafted, _, figures["head_accepted"] = greedy(
            network, questions["prompts"], Drafting(3, lookup=False, head=True)
        )
        figures["drafted_s"] = round(time.monotonic() - began, 2)
        figures["drafts_change_nothing"] = drafted == texts
    if given.device != "cpu":
        figures |= together(network, questions["prompts"], texts, given.scratch / name)
    print(name, json.dumps({k: v for k, v in figures.items() if k != "abilities"}), flush=True)
    for ability, counts in figures["abilities"].items():
        print(f"  {ability}: {counts[0]} of {counts[1]} exact, {counts[2]} of {counts[3]} tokens", flush=True)
    return figures, arrays


def compare(name: str, figures: dict[str, Any], arrays: dict[str, Any], other: Any, label: str) -> None:
    """Distances from another run."""
    mean, most = divergence(arrays["rows"], other[f"{name}.ids"], other[f"{name}.logp"])
    ours, theirs = json.loads(arrays["texts"]), json.loads(str(other[f"{name}.texts"]))
    figures[f"kl_{label}"] = {"mean": mean, "most": most, "rows": len(arrays["rows"])}
    figures[f"same_texts_{label}"] = [sum(a == b for a, b in zip(ours, theirs, strict=True)), len(ours)]
    print(
        f"{name} against {label}: KL mean {mean:.2e}, most {most:.2e}; texts",
        figures[f"same_texts_{label}"],
        flush=True,
    )


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--exact", action="store_true", help="matrices in float32, on the CPU")
    parser.add_argument("--files", nargs="*", default=list(FILES))
    parser.add_argument("--save", type=Path, help="write logits and texts here")
    parser.add_argument("--against", type=Path, nargs="*", default=[], help="runs that were saved")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("scratch"), help="a folder for stored conversations")
    given = parser.parse_args()
    questions = json.loads(given.questions.read_text("utf-8"))
    result, kept = {}, {}
    for name in given.files:
        figures, arrays = examine(name, given, questions)
        for path in given.against:
            compare(name, figures, arrays, np.load(path), path.stem)
        result[name] = figures
        kept |= {f"{name}.{key}": value for key, value in (arrays | likeliest(arrays.pop("rows"))).items()}
    if given.save:
        np.savez_compressed(given.save, **kept)
    if given.json:
        given.json.write_text(json.dumps(result, indent=1), "utf-8")


if __name__ == "__main__":
    torch.inference_mode()(main)()
