"""Whether a model can run on a GPU, and how the card's memory is divided: arithmetic before anything is moved there."""

import importlib.util
import logging
import os
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from strata.errors import ModelError, RequestError, StrataError
from strata.loading import tiers
from strata.loading.device import Placement
from strata.loading.shown import shown_bytes
from strata.memory import budget
from strata.memory.budget import advice, least

if TYPE_CHECKING:
    import torch

    from strata.loading.learned import Learned
    from strata.loading.network import OnLoad
    from strata.model import ModelConfig, Network
    from strata.model.candidates import Wish
    from strata.model.ops import Ops
    from strata.model.weights import Weights

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
    """

    index: int
    name: str
    capability: int
    free: int
    total: int


def find(device: str) -> Card | None:
    """The card that a device's name means; None if there is no GPU that torch can use.

    Raises:
        RequestError: there are GPUs, but not this one.
    """
    import torch

    if not torch.cuda.is_available():
        return None
    index = int(device.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        raise RequestError(f"there is no GPU {index}; this machine has {torch.cuda.device_count()}, numbered from 0")
    free, total = torch.cuda.mem_get_info(index)
    major, minor = torch.cuda.get_device_capability(index)
    return Card(index, torch.cuda.get_device_name(index), 10 * major + minor, free, total)


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


def plan(card: Card, weights: int, c: "ModelConfig", conversations: int, *, drafts: bool) -> Placement:
    """Divide a card's memory.

    A conversation can always have the whole context; half of what is left beside that is for more of them.

    Args:
        card: where.
        weights: bytes of weights on the device.
        c: dimensions with the context in force.
        conversations: that run at once.
        drafts: whether the draft head runs.

    Raises:
        RequestError: it does not fit; says how much is needed and free, and what would make it fit.
    """
    from strata.loading.sizes import shapes_of
    from strata.ops.gpu.size import PASS_MOST

    # All weights are on the card, and nothing else is left to divide: no experts that move, no RAM that matters.
    shapes = shapes_of(replace(c, mtp=drafts), tensor_cores=card.capability >= TENSOR_CORES, short=PASS_MOST)
    cells = shapes.cells if shapes.draft_cells is None else shapes.cells + shapes.draft_cells
    sizes = budget.Sizes(c.name, c.context, weights, cells, work=shapes.work)
    machine = budget.Machine(card.free)
    kv = c.qsa.kv if c.qsa.kv in cells.pages else None
    wishes = budget.Wishes(conversations=conversations, headroom=0, kv=kv)
    try:
        made = budget.plan(machine, sizes, wishes)
    except budget.DoesNotFitError as error:
        raise RequestError(_too_large(card, weights, machine, sizes, wishes, error)) from error
    assert made.vram is not None
    work = made.vram.bytes_of(least.WORK) + made.vram.bytes_of(least.PASS)
    return Placement(f"cuda:{card.index}", card.name, weights, made.cells, made.vram.bytes_of(least.TALK), work)


def _too_large(
    card: Card,
    weights: int,
    machine: budget.Machine,
    sizes: budget.Sizes,
    wishes: budget.Wishes,
    error: budget.DoesNotFitError,
) -> str:
    """What is needed, what is free, and what would help."""
    need = error.shortage.need
    work = sum(part.nbytes for part in error.shortage.parts if part.name in {least.WORK, least.PASS})
    help_ = []
    for flags, changed in advice.changes(machine, sizes, wishes):
        before, context, _ = flags.partition("--context ")
        help_.append(f"{before}{context}{changed.context} (context={changed.context})" if context else before)
    help_.sort(key=lambda text: "--context" in text)
    return (
        f"{card.name} has {shown_bytes(card.free)} of {shown_bytes(card.total)} free, but {shown_bytes(need)} are "
        f"needed: {shown_bytes(weights)} of weights, {shown_bytes(need - weights - work)} for conversations with a "
        f"context of {sizes.context} tokens, {shown_bytes(work)} of work space; "
        f"what would help: {', '.join([*help_, 'a smaller file'])}, or memory that other programs there give back"
    )


def _use(name: str) -> "torch.device":
    """Make a card the one that kernels are launched on."""
    import torch

    device = torch.device(name)
    torch.cuda.set_device(device)
    return device


def network(
    card: Card,
    weights: "Weights",
    config: "ModelConfig",
    conversations: int,
    on_load: "OnLoad | None",
    *,
    vram: int | None = None,
    threads: int | None = None,
    learned: "Learned | None" = None,
) -> tuple["Network", Placement]:
    """Move weights to a card and make the network that runs there.

    Args:
        card: where.
        weights: as the file stores them.
        config: dimensions; keys and values in a type that a GPU has, any other stands for bf16.
        conversations: that run at once.
        on_load: called with (bytes moved, bytes to move).
        vram: bytes to take at most; routed experts that do not fit then stay in RAM.
        threads: CPU threads that compute those.
        learned: which of them were visited most.

    Raises:
        RequestError: it does not fit, or has types without kernels there.
    """
    from strata.loading import storage
    from strata.model import Network
    from strata.ops.gpu.draft import DraftHead
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import KINDS as TABLES
    from strata.ops.gpu.pool import Pool, head_config
    from strata.ops.gpu.size import weight_bytes
    from strata.ops.gpu.upload import Upload

    config = replace(config, qsa=replace(config.qsa, kv=config.qsa.kv if config.qsa.kv in KINDS else KV))
    drafts = weights.mtp is not None
    try:
        total, kept = weight_bytes(weights)
    except ModelError as error:
        raise RequestError(str(error)) from error
    placed, room = _placed(card, weights, kept, config, conversations, vram)
    device, done = _use(placed.device), 0

    def sent(count: int) -> None:
        nonlocal done
        done += count
        if on_load:
            on_load(min(done, total - 1), total)

    tier = None if room is None else tiers.build(weights, config, room, device, threads, sent, learned)
    moved = Upload(device, sent, tier=tier).all(weights)
    small = head_config(config)
    pool = Pool(config, device, slots=conversations, cells=placed.cells, kv=TABLES[config.qsa.kv])
    its = Pool(small, device, slots=conversations, cells=placed.cells) if drafts else None

    coming = tiers.prompts(tier, moved, config, device) if card.capability >= TENSOR_CORES else None

    def made(*, graphs: bool) -> Network:
        ops = GpuOps(config, pool, device, graphs=graphs, tier=tier)
        ops.lacks(coming, table=storage.beside(moved))
        if its is not None:
            ops.drafts = DraftHead(GpuOps(small, its, device, graphs=graphs), its, config, device)
        return Network(config, moved, cast("Ops", ops))

    with tiers.still(tier):
        if device.type == "cuda":
            compile_ahead(replace(made(graphs=False), drafts=drafts), card)
        found = made(graphs=True)
        if device.type == "cuda":
            warm(replace(found, drafts=drafts))
    if on_load:
        on_load(total, total)
    return found, placed


def _placed(
    card: Card, weights: "Weights", kept: int, config: "ModelConfig", conversations: int, vram: int | None
) -> tuple[Placement, int | None]:
    """Where the model is; and bytes for slots if its experts are not all there."""
    drafts = weights.mtp is not None
    if vram is None:
        return plan(card, kept, config, conversations, drafts=drafts), None
    card = replace(card, free=min(card.free, vram))
    try:
        return plan(card, kept, config, conversations, drafts=drafts), None
    except RequestError:
        routed = tiers.expert_bytes(weights)
        dense = kept - routed + tiers.room_bytes(weights)
        return tiers.place(card, dense, config, conversations, routed, drafts=drafts)


def compile_ahead(network: "Network", card: Card) -> None:
    """Compile what `warm` launches and is not on disk yet, several kernels at once.

    The first start with a new card or a new version compiles some 190 kernels, of which each takes about a second.

    Args:
        network: without graphs. Its memory keeps what it had, for nothing is launched.
        card: for which.
    """
    from strata.ops.kernels.ahead import FEW, compile_all
    from strata.ops.kernels.launches import Target, missing, noted
    from strata.ops.ngram.host import HostTable

    tables = [layer.ple.table for layer in network.weights.layers if layer.ple is not None]
    if any(isinstance(table, HostTable) or getattr(table, "planes", table) is None for table in tables):
        return  # the host, or torch itself, would look rows up by numbers that no kernel has computed
    target = Target(card.capability)
    wanted = missing(noted(lambda: warm(network)), target)
    if len(wanted) > FEW:
        began = time.monotonic()
        log.info("%s: compiling %d kernels, once for this card and version", card.name, len(wanted))
        try:
            compile_all(wanted, target, len(os.sched_getaffinity(0)))
        except StrataError as wrong:
            log.warning("%s; they are compiled one after another, which takes minutes", wrong)
        log.info("%s: compiled %d kernels in %.0f s", card.name, len(wanted), time.monotonic() - began)


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
