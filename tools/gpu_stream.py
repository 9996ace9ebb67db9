"""Prompts whose experts come from RAM, on a GPU, from a bare checkout: the same bytes first, then speed.

    python tools/gpu_stream.py [--model FILE] [--json bench/results/h200-tiers.json] [--only correct none cap24]

1. *correct*: a file of four layers in the released shapes; residuals of prompts of 17, 200, 700 and 4,100 tokens with
   none, a third and all but one of the experts in slots, through rings of one, twelve and 96 buffers, byte for byte
   against the network that has them all.
2. *none*: 8,192 tokens with no expert in VRAM, in passes of 8,192 and of 4,096. 3. *cap24*: 200 tokens on a card capped
   at 24 GB, with slots that have learned from windows. With each: the bytes that crossed, and what the link alone would
   take for them.

Needs torch, Triton, NumPy and Numba, and `tools/gpu_tiers.py` beside it. Results are written as they come, beside what
others have written to the file. Exits with 1 if a byte differs.
"""

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gpu_tiers import DEVICE, SKEW, Fixed, Model, ids, skew_of, window

sys.path.insert(0, str(ROOT / "src"))

from strata.loading import gpu, tiers
from strata.memory.slots import Move, SlotCache
from strata.model import Network
from strata.ops.tiers.prompts import BUFFERS, streaming
from strata.ops.tiers.tier import Tier, TierOptions

PARTS = ("correct", "none", "cap24")


def streamed(model: Model, network: Network, tier: Tier, *, buffers: int = BUFFERS, rows: int = 4096) -> Any:
    """Let a network's prompts fetch what they lack."""
    moes: Any = [layer.moe for layer in network.weights.layers]
    coming = streaming(tier, moes, model.config.moe.topk, DEVICE, buffers=buffers)
    network.ops.lacks(coming, rows=rows)  # type: ignore[attr-defined]
    return coming


def placed(model: Model, wanted: list[tuple[int, int]]) -> tuple[Network, Tier]:
    """A network with some (layer, expert) in slots that never change."""
    layers, each = len(model.moes), model.config.moe.E
    by_class = [[pair for pair in wanted if model.classes[pair[0]] == i] for i in range(len(model.sizes))]
    cache = Fixed(layers, each, [])
    cache._next = [Move(i, e, slot) for some in by_class for slot, (i, e) in enumerate(some)]  # noqa: SLF001
    slots = tuple(max(1, len(some)) for some in by_class)
    network, tier = model.network(cache, slots, TierOptions(tuple(tiers.processors(None)), every=0))
    assert tier is not None
    return network, tier


def correct(path: Path) -> dict[str, Any]:
    """Residuals in every placement."""
    model = Model(path)
    lengths, layers, each = (17, 200, 700, 4100), len(model.moes), model.config.moe.E
    network, _ = model.network()
    expected = {n: network.read(network.new_state(), ids(n, n, model.config.V)).cpu() for n in lengths}
    del network
    result: dict[str, Any] = {"different": 0}
    for name, kept in (("none", 0), ("a third", each // 3), ("all but one", each - 1)):
        network, tier = placed(model, [(i, (7 * e + i) % each) for i in range(layers) for e in range(kept)])
        for buffers in (1, 12, BUFFERS):
            coming = streamed(model, network, tier, buffers=buffers)
            for n in lengths:
                found = network.read(network.new_state(), ids(n, n, model.config.V)).cpu()
                wrong = int((found != expected[n]).any(1).sum())
                result["different"] += wrong
                print(f"{name}, {buffers} buffers, {n} tokens: {wrong} rows differ; {coming.asked} asked", flush=True)
        tier.close()
        del network, tier
        gc.collect()
    return result


def read(network: Network, tokens: int, rounds: int) -> list[float]:
    """Tokens a second of prompts of a new conversation each; the first round does not count."""
    found = []
    for turn in range(-1, rounds):
        state = network.new_state()
        torch.cuda.synchronize()
        began = time.perf_counter()
        network.read(state, ids(1000 + turn, tokens, network.config.V))
        torch.cuda.synchronize()
        if turn >= 0:
            found.append(round(tokens / (time.perf_counter() - began), 1))
        del state
    return found


def link(tier: Tier, experts: int = 512) -> float:
    """GB/s of experts brought one group after the other, with nothing beside."""
    from strata.ops.tiers.prompts import Shelf

    most = min(32, experts)
    shelf = Shelf(tier, most, DEVICE)
    ring = torch.zeros((most, shelf.layout(0).nbytes), dtype=torch.uint8, device=DEVICE)
    for turn in range(2):
        torch.cuda.synchronize()
        began = time.perf_counter()
        for first in range(0, experts, most):
            shelf.bring(turn, ring, range(first, min(first + most, experts)), range(min(most, experts - first)))
        torch.cuda.synchronize()
    return experts * tier.layers[1].source.nbytes / (time.perf_counter() - began) / 1e9


def none(model: Model, rounds: int) -> dict[str, Any]:
    """No expert in VRAM."""
    network, tier = placed(model, [])
    rate = link(tier, model.config.moe.E)
    moved = sum(one.source.nbytes for one in tier.layers) * model.config.moe.E
    found: dict[str, Any] = {"link_gbs": round(rate, 2), "pass_gb": round(moved / 1e9, 2), "rounds": {}}
    for rows in (4096, 8192):
        coming = streamed(model, network, tier, rows=rows)
        found["rounds"][f"passes of {rows}"] = read(network, 8192, rounds)
        found[f"bound_{rows}_tps"] = round(8192 / (8192 / rows * moved / 1e9 / rate), 1)
        print("none", rows, found, coming.asked, torch.cuda.max_memory_allocated() / 1e9, flush=True)
    tier.close()
    return found


def cap24(model: Model, rounds: int) -> dict[str, Any]:
    """A card of 24 GB, skewed routing, slots that learned from windows."""
    each = model.config.moe.E
    card = gpu.find("cuda")
    assert card is not None
    made = gpu.plan_for(card, model.directory, model.config, 1, vram=24 * 10**9, drafts=False)
    slots = tuple(sum(one.in_vram for one in made.classes if one.slot == size) for size in model.sizes)
    cache = SlotCache(model.sizes, model.classes, slots, experts=each)
    options = TierOptions(tuple(tiers.processors(None)), room=tiers.ROOM)
    skew = skew_of(SKEW, each, model.config.moe.topk)
    network, tier = model.network(cache, slots, options, skew=skew)
    assert tier is not None
    window(network, 4, 400, 1)
    coming = streamed(model, network, tier)
    found: dict[str, Any] = {"slots": int((tier.cache.slot_of >= 0).sum()), "rounds": {}}
    for tokens in (17, 200, 1000):
        before = coming.brought
        found["rounds"][f"{tokens} tokens"] = read(network, tokens, rounds)
        found[f"brought_{tokens}"] = (coming.brought - before) // (rounds + 1)
        print("cap24", found, flush=True)
    found["asked"] = coming.asked
    tier.close()
    return found


def main() -> int:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path)
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*", default=list(PARTS), choices=PARTS)
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-tiers.json")
    given = parser.parse_args()
    document: dict[str, Any] = json.loads(given.json.read_text()) if given.json.exists() else {}
    figures, prompts = document.setdefault("figures", {}), document.setdefault("prompts", {})

    def synthetic(path: Path, *more: str) -> Path:
        if not path.exists():
            command = [sys.executable, "-m", "strata.lab.synthetic", str(path), *more]
            subprocess.run(command, check=True, cwd=ROOT / "src")
        return path

    with torch.inference_mode():
        if "correct" in given.only:
            prompts["correct"] = correct(synthetic(given.scratch / "strata-small.gguf", "--layers", "4"))
            given.json.write_text(json.dumps(document, indent=1) + "\n")
            if prompts["correct"]["different"]:
                return 1
        arms = [name for name in ("none", "cap24") if name in given.only]
        model = Model(given.model or synthetic(given.scratch / "strata-synthetic.gguf")) if arms else None
        for name in arms:
            assert model is not None
            prompts[name] = (none if name == "none" else cap24)(model, given.rounds)
            gc.collect()
            torch.cuda.empty_cache()
            rounds = prompts[name]["rounds"]
            if name == "none":
                figures["prompt_8192_none_tps"] = statistics.median(rounds["passes of 8192"])
            else:
                figures["prompt_200_cap24_tps"] = statistics.median(rounds["200 tokens"])
            given.json.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
