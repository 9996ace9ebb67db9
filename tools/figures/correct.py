"""Bytes: windows and prompts in every placement against the network that has all experts, and faults."""

import ctypes
import gc
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from figures.arms import Arm
from figures.model import Fixed, Model
from figures.session import Session
from figures.windows import ids
from strata.errors import StrataError, TierError
from strata.experts.compute.matrix import CODE
from strata.experts.kernels.cached import task_function
from strata.experts.misses import Costs
from strata.experts.pool.atomics import load, pause
from strata.experts.pool.region import LOST
from strata.loading import tiers
from strata.memory.slots import SlotCache
from strata.model import Network
from strata.ops.tiers.sizes import BUFFERS
from strata.ops.tiers.tier import TierOptions

SHARES = (0.0, 1 / 3, 1.0)
SPLITS = {"host": Costs(1, 1e6), "link": Costs(1e6, 1), "both": Costs(1, 1)}


def windows(session: Session) -> dict[str, Any]:
    """Residuals of windows of 1, 2, 4 and 8 rows, eager and replayed, for every split; slots change between windows.

    Raises:
        StrataError: a byte differs, or a fault is not noticed.
    """
    model, times = Model(session.small_path, session.device, session.sizes.context), session.sizes.times
    network, _ = model.network(ahead=True)
    expected = computed(network, 7, times)
    session.say(f"{len(expected)} windows with all experts in VRAM")
    del network
    found: dict[str, Any] = {"windows": len(expected), "different": 0}
    for share in SHARES:
        for name, costs in SPLITS.items():
            network, tier = _adapting(model, share, costs, ahead=len(found) == 2)
            got = computed(network, 7, times)
            wrong = different(expected, got)
            found["different"] += wrong
            met, messages = asdict(tier.total), tier.host.stats().messages
            found[f"{share:.0%} {name}"] = {"different": wrong, **met, "messages": messages}
            session.say(f"{share:.0%} {name}: {wrong} of {len(got)} differ; {tier.total}")
            session.keep(found)
            tier.close()
            del network, tier
            gc.collect()
    found["faults"] = faults(session, model)
    session.keep(found)
    if found["different"] or not all(found["faults"].values()):
        raise StrataError(f"{found['different']} windows differ; faults noticed: {found['faults']}")
    return found


def computed(network: Network, seed: int, times: int) -> list[torch.Tensor]:
    """What windows of several shapes leave behind the last layer, each met often enough to be recorded."""
    state, found = network.new_state(), []
    for turn in range(times):
        for rows in (1, 2, 4, 8) if times > 1 else (1,):
            done = network.window([(state, ids(seed + 100 * turn + rows, rows, network.config.V))])
            found.append(done[0].residual.clone())
            network.ops.check()
            network.commit(state, done[0], 1)
    return found


def different(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor]) -> int:
    """Windows of which a byte differs."""
    return sum(not torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def predictions(network: Network, seed: int, times: int) -> list[bytes]:
    """The same as predictions, of which each is waited for."""
    state, found = network.new_state(), []
    for turn in range(times):
        for rows in (1, 2, 4, 8) if times > 1 else (1,):
            done = network.window([(state, ids(seed + 100 * turn + rows, rows, network.config.V))])
            found.append(network.predictions(done).tobytes())
            network.commit(state, done[0], 1)
    return found


def _adapting(model: Model, share: float, costs: Costs, *, ahead: bool) -> tuple[Network, Any]:
    each = model.config.moe.E
    total = tuple(round(share * each * model.classes.count(i)) for i in range(len(model.sizes)))
    cache = SlotCache(model.sizes, model.classes, total, experts=each)
    return model.network(
        cache, total, TierOptions(tuple(tiers.processors(None)), costs, every=1, moves=64), ahead=ahead
    )


def faults(session: Session, model: Model) -> dict[str, bool]:
    """A worker that dies, and one that stalls beyond the window's patience: the window fails, the next is right."""
    lost, gate = LOST, np.zeros(1, np.int64)
    at = gate.ctypes.data

    def die(task: int, first: int, last: int) -> int:  # noqa: ARG001
        return lost

    def stall(task: int, first: int, last: int) -> int:  # noqa: ARG001
        while load(at) == 0:
            pause()
        return 0

    codes = {"dies": task_function(die), "stalls": task_function(stall)}
    options = TierOptions(tuple(tiers.processors(None)), Costs(1, 1e6), patience=0.5, looks=20_000, every=0)
    cache = Fixed(model.classes, model.config.moe.E, [])
    network, tier = model.network(cache, cache.slots, options)
    assert tier is not None
    expected, found = predictions(network, 9, 2), {}
    for name, code in codes.items():
        word = ctypes.c_int64.from_address(model.experts[1].down.address + CODE)
        before, word.value, gate[0] = word.value, code.address, 0
        began = time.monotonic()
        try:
            predictions(network, 9, 1)
            failed = ""
        except TierError as error:
            failed = str(error)
        took = time.monotonic() - began
        word.value, gate[0] = before, 1
        time.sleep(0.5)
        right = predictions(network, 9, 2) == expected
        found[name] = bool(failed) and "layer 1" in failed and took < 20 and right
        session.say(f"a worker {name}: {took:.2f} s; {failed or 'nothing was noticed'}; afterwards right: {right}")
    tier.close()
    return found


def prompts(session: Session) -> dict[str, Any]:
    """Residuals of prompts with none, a third and all but one of the experts in slots, through rings of three sizes.

    Raises:
        StrataError: a byte differs.
    """
    model, lengths = Model(session.small_path, session.device, session.sizes.context), session.sizes.lengths
    each = model.config.moe.E
    network, _ = model.network(ahead=True)
    expected = {n: residuals(network, n) for n in lengths}
    del network
    found: dict[str, Any] = {"different": 0, "asked": 0}
    for name, kept in (("none", 0), ("a third", each // 3), ("all but one", each - 1)):
        wanted = [(i, (7 * e + i) % each) for i in range(model.layers) for e in range(kept)]
        cache = Fixed(model.classes, each, wanted)
        options = TierOptions(tuple(tiers.processors(None)), every=0)
        network, tier = model.network(cache, cache.slots, options, ahead=not kept)
        assert tier is not None
        arm = Arm(network, tier, {}, {})
        for buffers in (1, 12, BUFFERS):
            coming = arm.reading(buffers=buffers)
            for n in lengths:
                wrong = int((residuals(network, n) != expected[n]).any(1).sum())
                found["different"] += wrong
                session.say(f"{name}, {buffers} buffers, {n} tokens: {wrong} rows differ; {coming.asked} asked")
            found["asked"] += coming.asked
        session.keep(found)
        tier.close()
        del network, tier, arm
        gc.collect()
    if found["different"]:
        raise StrataError(f"{found['different']} rows of prompts differ")
    return found


def residuals(network: Network, count: int) -> torch.Tensor:
    """Of a prompt's rows."""
    return network.read(network.new_state(), ids(count, count, network.config.V)).cpu()
