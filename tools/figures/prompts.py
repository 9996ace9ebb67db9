"""Prompts whose experts come from RAM."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from figures.arms import Arm, used
from figures.session import Session, synchronise
from figures.summary import median
from figures.windows import ids, learn, windows
from strata.model import Network
from strata.ops.tiers.landing import Landing


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
    """Short prompts on a card of 24 GB, skewed routing, slots that have learned from windows; and a long one."""
    (arm,) = session.arms("cap24").values()
    sizes, device = session.sizes, session.device
    if "learning" not in arm.extra:  # windows before this part have taught the slots, if they ran in this process
        learn(session, "cap24", arm)
    coming, before = arm.coming, used(session.model)
    found: dict[str, Any] = {"facts": arm.facts, "placed": arm.placed, "learning": arm.extra["learning"]}
    found |= {"rounds": {}, "brought": {}, "asked": {}}
    for turn in session.rounds(3):
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
    found["borrowing"] = [borrowing(session, arm, turn) for turn in range(2)]
    return found | {"grown_gb": round((used(session.model) - before) / 1e9, 3)}  # records and what they work in


def borrowing(session: Session, arm: Arm, turn: int) -> dict[str, Any]:
    """The long prompt, which borrows memory of slots, and windows until these have it back and are full again."""
    assert arm.tier is not None
    tier, sizes, device = arm.tier, session.sizes, session.device
    found: dict[str, Any] = {"slots_before": sum(tier.room.slots), "tokens": sizes.prompt}
    found["tps"] = round(read(arm.network, sizes.prompt, 5000 + turn, device), 1)
    found |= {"slots_meanwhile": sum(tier.room.slots), "borrowed_gb": round(tier.borrowing.nbytes / 1e9, 3)}
    found["ring_width"] = arm.coming.width
    found["windows_ms"] = [
        round(one, 2) for one in windows(arm.network, sizes.wide, max(1, sizes.tokens // 2), 6000 + turn)
    ]
    found |= {"slots_after": sum(tier.room.slots), "still_borrowed_gb": round(tier.borrowing.nbytes / 1e9, 3)}
    found["slots_held_after"] = int((tier.cache.slot_of >= 0).sum())
    session.say(f"a long prompt: {found}")
    return found


RINGS = ((96, 3, 8), (96, 3, 3), (96, 2, 8))
"""Buffers, landing places, and programs for each multiprocessor; a group is a third of the buffers."""


def rings(session: Session) -> dict[str, Any]:
    """The long prompt with no expert in VRAM in one pass, through rings of several shapes that take turns."""
    (arm,) = session.arms("none").values()
    sizes, device = session.sizes, session.device
    found: dict[str, Any] = {"tokens": sizes.prompt, "rounds": {}}
    if device.type == "cuda":
        found |= landed(arm, device)
        session.say(f"{found}")
    for turn in session.rounds():
        for buffers, places, each in RINGS:
            arm.reading(buffers=buffers, landing=places, each=each, rows=sizes.prompt)
            speed = read(arm.network, sizes.prompt, 1000 + turn, device)
            key = f"{buffers} buffers, {places} places, {each} programs"
            session.say(f"round {turn + 1}: {key}: {speed:.1f} tokens/s")
            if turn >= 0:
                found["rounds"].setdefault(key, []).append(round(speed, 1))
        if turn >= 0:
            found["medians"] = {key: median(some) for key, some in found["rounds"].items()}
            session.keep(found)
    return found


def landed(arm: Arm, device: torch.device) -> dict[str, Any]:
    """Microseconds of an expert: copied with its neighbours, copied alone, and made to planes by so many programs."""
    assert arm.tier is not None
    sources = [one.source for one in arm.tier.layers]
    most = min(32, arm.tier.table.shape[1] // 2)
    to = torch.arange(most, dtype=torch.int32, device=device)
    slots = torch.zeros((most, max(one.layout.nbytes for one in sources)), dtype=torch.uint8, device=device)
    found: dict[str, Any] = {}
    here = slots[:, : sources[0].layout.nbytes]
    for each in sorted({each for _, _, each in RINGS}):
        area = Landing(sources, most, device, arm.tier.ram.cuts, each=each)
        for name, step in (("together", 1), ("alone", 2)):
            addresses = arm.tier.ram.addresses[0, : most * step : step]
            took = _microseconds(partial(area.fetch, sources[0], 0, addresses, range(most)))
            found[f"copied_{name}_us"] = round(took / most, 2)
        took = _microseconds(partial(area.bring, sources[0], here, 0, most, to))
        found[f"made_by_{each}_us"] = round(took / most, 2)
    return found


def _microseconds(body: Callable[[], Any], times: int = 8) -> float:
    """Of a launch, on the device's clock."""
    began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    body()
    began.record()
    for _ in range(times):
        body()
    ended.record()
    ended.synchronize()
    return float(1e3 * began.elapsed_time(ended) / times)


def link(arm: Arm, device: torch.device, groups: int = 16) -> float:
    """GB/s of experts that windows' kernel brings one group after the other, with nothing beside."""
    assert arm.tier is not None
    tier = arm.tier
    experts = tier.table.shape[1]
    most = min(32, experts)
    heaviest = max(one.source.nbytes for one in tier.layers)
    stage = torch.zeros(most * heaviest, dtype=torch.uint8, device=device)
    slots = torch.zeros((most, max(one.source.layout.nbytes for one in tier.layers)), dtype=torch.uint8, device=device)
    to, count = (
        torch.arange(most + 1, dtype=torch.int32, device=device)[part] for part in (slice(most), slice(-1, None))
    )
    chosen = [
        torch.arange(first, first + most, dtype=torch.int32, device=device)
        for first in (group * most % (experts - most + 1) for group in range(groups))
    ]
    took = 0.0
    for turn in range(2):
        source = tier.layers[turn % len(tier.layers)].source
        synchronise(device)
        began = time.perf_counter()
        for some in chosen:
            source.launch(slots[:, : source.layout.nbytes], stage, some, to, count, most)
        synchronise(device)
        took = time.perf_counter() - began
    return groups * most * tier.layers[1 % len(tier.layers)].source.nbytes / took / 1e9
