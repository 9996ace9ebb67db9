"""Prompts whose experts come from RAM."""

import time
from typing import Any

import torch

from figures.arms import Arm
from figures.session import Session, synchronise
from figures.summary import median
from figures.windows import ids, learn
from strata.model import Network
from strata.ops.tiers.prompts import Shelf


def read(network: Network, tokens: int, seed: int, device: torch.device) -> float:
    """Tokens a second of a prompt of a new conversation, until its last residual is there."""
    state = network.new_state()
    prompt = ids(seed, tokens, network.config.V)
    synchronise(device)
    began = time.perf_counter()
    network.read(state, prompt)
    synchronise(device)
    return tokens / (time.perf_counter() - began)


def none(session: Session) -> dict[str, Any]:
    """The long prompt with no expert in VRAM, in passes of several lengths that take turns."""
    (arm,) = session.arms("none").values()
    sizes, device = session.sizes, session.device
    found: dict[str, Any] = {"facts": arm.facts, "tokens": sizes.prompt, "rounds": {}, "brought": {}, "passes": {}}
    for turn in session.rounds():
        for rows in sizes.passes:
            coming = arm.reading(rows=rows)
            speed = read(arm.network, sizes.prompt, 1000 + turn, device)
            session.say(f"round {turn + 1}: {sizes.prompt} tokens in passes of {rows}: {speed:.1f} tokens/s")
            key = str(rows)
            if turn >= 0:
                found["rounds"].setdefault(key, []).append(round(speed, 1))
            found["passes"][key] = {"passes": coming.passes, "asked": coming.asked, "brought": coming.brought}
            found["brought"][key] = coming.brought
        if turn >= 0:
            found["medians"] = {rows: median(some) for rows, some in found["rounds"].items()}
            session.keep(found)
    if device.type == "cuda":
        found["peak_gb"] = round(torch.cuda.max_memory_allocated() / 1e9, 2)
    return found


def cap24(session: Session) -> dict[str, Any]:
    """Short prompts on a card of 24 GB, skewed routing, slots that have learned from windows."""
    (arm,) = session.arms("cap24").values()
    sizes, device = session.sizes, session.device
    if "learning" not in arm.extra:  # windows before this part have taught the slots, if they ran in this process
        learn(session, "cap24", arm)
    coming = arm.reading()
    found: dict[str, Any] = {"facts": arm.facts, "placed": arm.placed, "learning": arm.extra["learning"]}
    found |= {"rounds": {}, "brought": {}, "asked": {}}
    for turn in session.rounds():
        for tokens in sizes.shorts:
            brought, asked = coming.brought, coming.asked
            speed = read(arm.network, tokens, 3000 + 10 * turn, device)
            session.say(f"round {turn + 1}: {tokens} tokens: {speed:.1f} tokens/s")
            key = str(tokens)
            if turn >= 0:
                found["rounds"].setdefault(key, []).append(round(speed, 1))
            found["brought"][key], found["asked"][key] = coming.brought - brought, bool(coming.asked - asked)
        if turn >= 0:
            found["medians"] = {tokens: median(some) for tokens, some in found["rounds"].items()}
            session.keep(found)
    return found


def link(arm: Arm, device: torch.device, groups: int = 16) -> float:
    """GB/s of experts that the product's own kernel brings one group after the other, with nothing beside."""
    assert arm.tier is not None
    tier = arm.tier
    experts = tier.table.shape[1]
    most = min(32, experts)
    shelf = Shelf(tier, most, device)
    ring = torch.zeros((most, max(one.source.layout.nbytes for one in tier.layers)), dtype=torch.uint8, device=device)
    took = 0.0
    for turn in range(2):
        layer = turn % len(tier.layers)
        here = ring[:, : shelf.layout(layer).nbytes]
        synchronise(device)
        began = time.perf_counter()
        for group in range(groups):
            first = group * most % (experts - most + 1)
            shelf.bring(layer, here, range(first, first + most), range(most))
        synchronise(device)
        took = time.perf_counter() - began
    return groups * most * tier.layers[1 % len(tier.layers)].source.nbytes / took / 1e9
