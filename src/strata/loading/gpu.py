"""Whether a model can run on a GPU, and how the card's memory is divided: arithmetic before anything is moved there."""

import gc
import importlib.util
import logging
import os
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from strata.errors import ModelError, RequestError, StrataError
from strata.loading import tiers
from strata.loading.device import Placement
from strata.memory.budget import Machine, Wishes, compared, least, plan, retry
from strata.memory.budget.machine import rates_for

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from strata.gguf import TensorDirectory
    from strata.loading.learned import Learned
    from strata.loading.network import OnLoad
    from strata.memory.budget import Plan, Taken
    from strata.model import ModelConfig, Network
    from strata.model.candidates import Wish
    from strata.model.ops import Ops
    from strata.model.weights import Weights
    from strata.ops.tiers.tier import Tier

log = logging.getLogger("strata.loading")

FIRST = 75
"""Ten times the least compute capability that kernels are run on."""

KV = "bf16"
"""The type of keys and values there, if nobody asks for another."""

KINDS = (KV, "q8")
"""Those that it has."""

TENSOR_CORES = 80
"""Ten times the least compute capability whose tensor cores prompts are read on."""

WINDOW_ROWS = 8
"""Most rows of a window."""


@dataclass(frozen=True, slots=True)
class Card:
    """One GPU.

    Attributes:
        index: its number.
        name: of the model.
        capability: ten times the compute capability.
        free: bytes of memory that can be taken now.
        total: bytes of memory it has.
        lends: whether its driver can take memory of slots away while a model runs.
    """

    index: int
    name: str
    capability: int
    free: int
    total: int
    lends: bool = True


def find(device: str) -> Card | None:
    """The card that a device's name means; None if there is no GPU that torch can use.

    Raises:
        RequestError: there are GPUs, but not this one.
    """
    import torch

    from strata.ops.gpu.stacks import small_stacks
    from strata.ops.tiers.room import lends

    if not torch.cuda.is_available():
        return None
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise RequestError(f"there is no GPU {index}; this machine has {torch.cuda.device_count()}, numbered from 0")
    small_stacks(torch.device("cuda", index))
    free, total = torch.cuda.mem_get_info(index)
    major, minor = torch.cuda.get_device_capability(index)
    able = lends(torch.device("cuda", index))
    return Card(index, torch.cuda.get_device_name(index), 10 * major + minor, free, total, able)


def check_card(card: Card) -> None:
    """Refuse a card that kernels cannot run on.

    Raises:
        RequestError: says why.
    """
    if card.capability < FIRST:
        raise RequestError(unsupported(card.name, card.capability))
    if importlib.util.find_spec("triton") is None:
        raise RequestError("Triton is not installed; it comes with torch for Linux, or with `pip install triton`")


def unsupported(name: str, capability: int) -> str:
    """Why a card is too old, in a sentence."""
    shown = f"{capability // 10}.{capability % 10}"
    return (
        f"{name} has compute capability {shown}; the kernels need 7.5 or newer (Turing, 2018). They compile for 6.1 "
        "and 7.0 as well, but were never run there, and torch for CUDA 13 knows no such cards"
    )


def check_kv(kv: str | None) -> None:
    """Refuse a type of keys and values that a GPU does not have.

    Raises:
        RequestError: says which it has.
    """
    if kv is not None and kv not in KINDS:
        kinds = " or ".join(KINDS)
        raise RequestError(f"keys and values are kept as {kinds} on a GPU, not as {kv}; leave --kv (kv=) out")


def check_shapes(c: "ModelConfig") -> None:
    """Refuse dimensions that the kernels are not written for.

    Raises:
        RequestError: names them.
    """
    powers = {
        "the recurrent heads' width": c.gdn.d,
        "the attention heads' width": c.qsa.hd,
        "the indexer heads' width": c.qsa.id,
    }
    powers |= {"tokens of an indexer block": c.qsa.ratio, "chosen blocks": c.qsa.budget // c.qsa.ratio}
    wide = {"the hidden width": c.H, "the hyper-connections' rank": c.r, "the experts' width": c.moe.I}
    wrong = [f"{name} is {n}, not a power of two" for name, n in powers.items() if n & (n - 1)]
    wrong += [f"{name} is {n}, not a multiple of 32" for name, n in wide.items() if n % 32]
    if wrong:
        raise RequestError(f"the GPU's kernels do not fit the model: {'; '.join(wrong)}")


def plan_for(
    card: Card,
    directory: "TensorDirectory",
    config: "ModelConfig",
    conversations: int,
    *,
    vram: int | None = None,
    drafts: bool = True,
) -> "Plan":
    """The plan of a file on a card, whatever RAM there is; for who measures.

    Args:
        card: where.
        directory: the file's tensors.
        config: dimensions with the context in force.
        conversations: that run at once.
        vram: bytes to plan with at most; None for what is free.
        drafts: whether the draft head runs.

    Raises:
        DoesNotFitError: it does not fit.
    """
    from strata.loading.sizes import sizes_of

    sizes = sizes_of(directory, config, tensor_cores=card.capability >= TENSOR_CORES)
    kv = config.qsa.kv if config.qsa.kv in sizes.cells.pages else None
    wishes = Wishes(context=config.context, conversations=conversations, kv=kv, drafts=drafts)
    free = card.free if vram is None else min(card.free, vram)
    return plan(Machine(free, rates=rates_for(free, card.name), lends=card.lends), sizes, wishes)


def device_of(card: Card) -> "torch.device":
    """A card as torch names it; kernels are launched there from now on."""
    return _use(f"cuda:{card.index}")


def _use(name: str) -> "torch.device":
    """Make a card the one that kernels are launched on."""
    import torch

    device = torch.device(name)
    torch.cuda.set_device(device)
    return device


@dataclass(frozen=True, slots=True)
class Built:
    """What was put on a card.

    Attributes:
        network: it.
        tier: of its experts, if not all are there.
        notes: what a person should hear of it.
    """

    network: "Network"
    tier: "Tier | None"
    notes: tuple[str, ...] = ()


def network(
    card: Card,
    weights: "Weights",
    config: "ModelConfig",
    made: "Plan",
    on_load: "OnLoad | None",
    *,
    threads: int | None = None,
    source: tiers.Source | None = None,
    learned: "Learned | None" = None,
) -> tuple["Network", Placement]:
    """Move weights to a card and make the network that runs there, as a plan says.

    Args:
        card: where.
        weights: as the file stores them; with a draft head only if the plan has one.
        config: dimensions; keys and values in a type that a GPU has, any other stands for bf16.
        made: who gets how much.
        on_load: called with (bytes moved, bytes to move).
        threads: CPU threads that compute experts without a slot.
        source: the file, for experts that RAM does not hold; without it all of them have to be there.
        learned: which of them were visited most.

    Raises:
        DoesNotFitError: memory that the plan counts on cannot be had, whatever is left out.
        RequestError: the file has types without kernels there.
    """
    from strata.ops.gpu.size import weight_bytes

    tiers.check(made)
    config = replace(config, qsa=replace(config.qsa, kv=config.qsa.kv if config.qsa.kv in KINDS else KV))
    try:
        total, _ = weight_bytes(weights)
    except ModelError as error:
        raise RequestError(str(error)) from error
    device = device_of(card)

    def build(made: "Plan") -> Built:
        return _built(card, weights, config, made, device, _Told(on_load, total), threads, source, learned)

    before = _free(device)
    built, made = _whole_or_less(made, build)
    if on_load:
        on_load(total, total)
    taken = None if before is None else _taken(made, before - (_free(device) or 0))
    return built.network, replace(Placement.on_gpu(made, card.index, card.name, taken), notes=built.notes)


class _Told:
    """Progress of moving weights, never beyond the whole."""

    def __init__(self, on_load: "OnLoad | None", total: int) -> None:
        self._on_load, self._total, self._done = on_load, total, 0

    def __call__(self, count: int) -> None:
        self._done += count
        if self._on_load:
            self._on_load(min(self._done, self._total - 1), self._total)


def _built(
    card: Card,
    weights: "Weights",
    config: "ModelConfig",
    made: "Plan",
    device: "torch.device",
    sent: _Told,
    threads: int | None,
    source: tiers.Source | None,
    learned: "Learned | None",
) -> Built:
    """Everything that takes memory of a card, touched for the first time."""
    from strata.model import Network
    from strata.ops.gpu.draft import DraftHead
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import KINDS as TABLES
    from strata.ops.gpu.pool import Pool, head_config
    from strata.ops.gpu.segments import growing
    from strata.ops.gpu.upload import Upload
    from strata.ops.kernels.launches import meet

    drafts, tensor_cores = weights.mtp is not None, card.capability >= TENSOR_CORES
    if device.type == "cuda":
        meet()
    tier = None if made.resident else tiers.build(weights, config, made, device, threads, sent, source, learned)
    try:
        growing(device)
        moved = Upload(device, sent, tier=tier).all(weights)
        small, slots = head_config(config), made.conversations
        pool = Pool(config, device, slots=slots, cells=made.cells, kv=TABLES[config.qsa.kv], ahead=made.ahead)
        its = Pool(small, device, slots=slots, cells=made.cells) if drafts else None
        coming = loan = None
        if tensor_cores:
            coming, loan = tiers.prompts(tier, moved, config, device, made.machine.rates.disk, (made.short, made.rows))

        def assembled(*, graphs: bool) -> Network:
            ops = GpuOps(config, pool, device, graphs=graphs, tier=tier)
            ops.lacks(coming, rows=made.rows, loan=loan)
            if its is not None:
                ops.drafts = DraftHead(GpuOps(small, its, device, graphs=graphs), its, config, device)
            return Network(config, moved, cast("Ops", ops))

        said = ""
        with tiers.still(tier):
            if device.type == "cuda":
                said = compile_ahead(replace(assembled(graphs=False), drafts=drafts), card, partial(sent, 0))
            found = assembled(graphs=True)
            if device.type == "cuda":
                warm(replace(found, drafts=drafts))
                tiers.balance(tier)
            if tier is not None:
                tier.borrowing.give_back()  # whatever the first prompt has borrowed
    except BaseException:
        if tier is not None:
            tier.close()
        raise
    return Built(found, tier, (said,) if said else ())


def _free(device: "torch.device") -> int | None:
    """Bytes of a card that nobody has taken, nor torch keeps for later; None if it is none."""
    import torch

    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.mem_get_info(device)[0])


def _taken(made: "Plan", nbytes: int) -> "Taken":
    """What a plan came to, when so many bytes have been taken; prompt passes give theirs back after each."""
    assert made.vram is not None
    return compared(made, made.vram.budget - made.vram.bytes_of(least.PASS) - nbytes)


def _whole_or_less(made: "Plan", build: "Callable[[Plan], Built]") -> "tuple[Built, Plan]":
    """Follow a plan; where memory that it counts on cannot be had, the next smaller one (case N01).

    Raises:
        DoesNotFitError: not even the fewest experts leave enough.
    """
    import torch

    while True:
        try:
            return build(made), made
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and "out of memory" not in str(error):
                raise
            why = str(error).partition("\n")[0] or type(error).__name__
        # Out of the handler, so that nothing holds on to what was built.
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        smaller = retry(made)
        log.warning(
            "memory that was planned could not be had (%s); trying again with %d of %d experts in VRAM",
            why, smaller.slots, smaller.sizes.experts,
        )  # fmt: skip
        made = smaller


def compile_ahead(network: "Network", card: Card, on_each: "Callable[[], object]" = lambda: None) -> str:
    """Compile what `warm` launches and is not on disk yet, several kernels at once.

    The first start with a new card or a new version compiles some 190 kernels, of which each takes seconds. What no
    kernel has computed is zeros meanwhile, so whoever looks up rows of a table by number finds the first.

    Args:
        network: without graphs. Its memory keeps what it had, for nothing is launched.
        card: for which.
        on_each: called after each kernel.

    Returns:
        What a person should hear of it; empty if it was nothing.
    """
    from strata.ops.kernels.ahead import FEW, compile_all
    from strata.ops.kernels.launches import Target, missing, noted

    target = Target(card.capability)
    wanted = missing(noted(lambda: warm(network)), target)
    if len(wanted) <= FEW:
        return ""
    began = time.monotonic()
    log.info("%s: compiling %d kernels, once for this card and version", card.name, len(wanted))
    try:
        compile_all(wanted, target, len(os.sched_getaffinity(0)), on_each)
    except StrataError as wrong:
        said = f"{wrong}; they are compiled one after another, which takes minutes"
        log.warning("%s", said)
        return said
    took = time.monotonic() - began
    said = f"{len(wanted)} kernels were compiled in {took:.0f} s, once for {card.name} and this version"
    log.info("%s", said)
    return said


def _wishes(vocabulary: int) -> "list[Wish]":
    """What makes a device look for candidates in every way."""
    from strata.model.candidates import RowWish, Touched, Wish

    touched = Touched(np.zeros(1, np.int32), np.ones(1, np.bool_), np.zeros(1, np.float32))
    nothing = np.empty(0, np.int64)
    every = np.ones(vocabulary, np.bool_)
    rows = RowWish(), RowWish(0.0, None, every), RowWish(0.0, touched), RowWish(0.0, touched, every)
    return [Wish(nothing, 1, 1.0, (row,)) for row in rows]


def warm(network: "Network") -> None:
    """Launch everything once, so that no request waits for a kernel to be loaded or for a window to be captured."""
    from strata.model.decision import Drawn, Greedy

    ids = [1] * min(1024, network.config.context // 2)
    network.read(network.new_state(), ids)
    state = network.new_state()
    network.logits(network.read(state, ids[:17])[-1:])
    for rows in (1, *range(1, WINDOW_ROWS + 1)):
        done = network.window([(state, ids[:rows])])[0]
        if network.decide([(state, done)], [Greedy(np.empty(0, np.int64), (0,), 1)]) is None:
            network.commit(state, done, 1)
    for wish in _wishes(network.config.V):
        done = network.window([(state, ids[:1])])[0]
        network.look([done], [wish])
        network.commit(state, done, 1)
        if wish.rows[0].touched is None:
            done = network.window([(state, ids[:1])])[0]
            found = network.draw([(state, done)], [Drawn(wish, (0,), 1, 1.0, 0.0)])
            if found is None or isinstance(found[0], list):
                network.commit(state, done, 1)
    if network.drafts:
        network.settle(state)
        network.guess(state, 1, 2)
