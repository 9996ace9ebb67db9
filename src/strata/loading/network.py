"""The network of a model file, its weights in memory."""

import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from strata.errors import ModelError, RequestError
from strata.gguf import TensorDirectory, TensorInfo
from strata.loading import gpu
from strata.loading.cache import cached_as
from strata.loading.device import AUTO, CPU, Placement, check_device
from strata.loading.learned import Learned
from strata.loading.planning import machine_here, measured_rates, planned, wishes_of
from strata.loading.ram import measure, private
from strata.loading.shown import shown_bytes
from strata.loading.stored import check_storage, is_expert
from strata.loading.stretch import stretched
from strata.loading.touch import touch
from strata.memory.budget import Wishes, compared, least, retry
from strata.memory.budget.plan import Arena, Table
from strata.memory.errors import ScarceError

if TYPE_CHECKING:
    from strata.loading.files import ModelFile
    from strata.loading.storage import Storage
    from strata.memory.budget import Plan
    from strata.model import Inventory, ModelConfig, Network
    from strata.model.weights import Weights

SMALL = 4_000_000
"""Weights of an output matrix below which one thread is fastest: Pebble's has 0.7 million, the real model's 636."""

THREADS = range(1, 1025)
"""Threads that may be asked for; where the system refuses to start so many, torch ends the process."""

CONVERSATIONS = 8
"""That run at once, if nobody says how many."""

OnLoad = Callable[[int, int], None]

log = logging.getLogger("strata.loading")


class Loaded(NamedTuple):
    """What was loaded.

    Attributes:
        network: it.
        unused: names of tensors that it has no use for.
        placement: where it is.
        storage: what reads weights while it runs, if anything does.
        learned: where what its cache of experts learns is kept; None where it is not, or there is none.
    """

    network: "Network"
    unused: tuple[str, ...]
    placement: Placement
    storage: "Storage | None" = None
    learned: "Learned | None" = None


def check_threads(threads: int | None) -> None:
    """Refuse a number of threads that makes no sense.

    Raises:
        RequestError: it is neither None nor an integer from 1 to 1024.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads not in THREADS):
        raise RequestError(f"threads must be an integer from 1 to {THREADS[-1]}, not {threads!r}")


def load_network(
    file: "ModelFile",
    *,
    threads: int | None = None,
    context: int | None = None,
    rope_scale: float | None = None,
    kv: str | None = None,
    device: str = AUTO,
    ram: int | None = None,
    ngram: str | None = None,
    vram: int | None = None,
    headroom: int | None = None,
    drafts: bool = True,
    conversations: int = CONVERSATIONS,
    parked: int = 0,
    profiles: Path | None = None,
    on_load: OnLoad | None = None,
) -> Loaded:
    """Read the weights of an open file, and share memory out by `strata.loading.planning`, as `strata plan` shows it.

    All that can be known to be wrong is found before memory is taken.

    Args:
        file: the model.
        threads: CPU threads to compute with, in the whole process; None is one for a small model, where sharing the
            work takes longer than doing it, and for others one per physical (performance) core of one memory node, as
            far as the container's share of processor time allows.
        context: tokens a conversation may hold, see `strata.loading.stretch`; None is the longest whose keys and values
            take an eighth of the memory.
        rope_scale: factor of YaRN; 1 is off, None leaves what the file has.
        kv: type in which keys and values are kept, see `strata.model.kv`; None is f32 on the CPU, bf16 on a GPU, which
            has q8 as well.
        device: "cpu"; "cuda" or "cuda:N"; or "auto", which takes the first GPU if the model can run there and is not
            too large for it, and else the CPU, and says why.
        ram: most bytes of main memory to plan with; routed experts beyond it are read from the file when rows visit
            them. None is what is available.
        ngram: how rows of the n-gram table are read, see `strata.loading.storage`; None leaves it to the plan.
        vram: most bytes of the GPU's memory to plan with; routed experts beyond it stay in main memory and are computed
            there. None is what is free.
        headroom: bytes of these to leave free; None for the plan's own.
        drafts: whether the draft head is loaded.
        conversations: that run at once.
        parked: bytes of main memory for conversations that are kept.
        profiles: folder in which what a GPU's cache of experts learns is kept; None keeps nothing.
        on_load: called with (bytes loaded, bytes to load) after each tensor; bytes as they stay in memory.

    Raises:
        ModelError: the file holds no complete model of a supported architecture.
        TextError: its tokenizer cannot be used.
        DoesNotFitError: it does not fit into memory; says what is needed, what is there, and what to change.
        RequestError: threads is no integer from 1 to 1024, the model cannot have such a context or cache, or it cannot
            run on the GPU that was asked for.
    """
    from strata.model import load_config

    check_threads(threads)
    check_device(device)
    check_storage(ram, ngram, vram, headroom)
    try:
        own = load_config(file.metadata)
        longest, config = stretched(own, None, rope_scale), cached_as(stretched(own, context, rope_scale), kv)
        asked = _Asked(
            wishes_of(
                context=context, conversations=conversations, kv=kv, drafts=drafts, headroom=headroom, parked=parked,
                ngram=ngram,
            ),
            longest, ram, vram, ngram, threads,
        )  # fmt: skip
        why = ""
        if device != CPU:
            try:
                found = _on_gpu(file, config, device, asked, on_load, profiles)
                if found is not None:
                    return found
            except RequestError as error:
                if device != AUTO:
                    raise
                why = str(error)
                log.info("not on the GPU: %s", why)
        if config.qsa.kv == gpu.KV:
            raise RequestError(f"keys and values are kept as {gpu.KV} on a GPU only; leave --kv (kv=) out")
        return _on_cpu(file, config, asked, on_load, why)
    except ModelError as error:
        raise file.error(error) from error


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is wished of a load.

    Attributes:
        wishes: of its plan.
        longest: dimensions with the longest context there may be.
        ram, vram, ngram, threads: see `load_network`.
    """

    wishes: Wishes
    longest: "ModelConfig"
    ram: int | None
    vram: int | None
    ngram: str | None
    threads: int | None

    def plan(self, file: "ModelFile", card: gpu.Card | None) -> "Plan":
        """For this machine, with a card or without.

        Raises:
            RequestError: it does not fit, or a GPU has no kernels for its experts.
            ModelError: the file of the draft head belongs to another model.
        """
        from strata.loading.calibration import known
        from strata.loading.disks import source
        from strata.loading.draft import check_head
        from strata.loading.sizes import expert_types, sizes_of

        head = file.draft if self.wishes.drafts else None
        if head is not None:
            check_head(head, self.longest)
        cores = card is None or card.capability >= gpu.TENSOR_CORES
        try:
            sizes = sizes_of(file.directory, self.longest, head, gpu=card is not None, tensor_cores=cores)
        except ModelError as error:
            raise RequestError(str(error)) from error
        machine = machine_here(card, measure(), vram=self.vram, ram=self.ram)
        record = known().record if self.ram is None else None
        if record is not None:  # for what is said of speed
            where, name = source(file.path.parent), "" if card is None else card.name
            types = expert_types(file.directory)
            rates = measured_rates(machine.rates, record, types=types, disk=where, card=name)
            machine = replace(machine, rates=rates)
        return planned(machine, sizes, self.wishes)[0]


def _inventory(file: "ModelFile", config: "ModelConfig") -> "Inventory":
    from strata.model import take_inventory

    inventory = take_inventory(file.directory, config)
    if file.tokenizer.size > config.V:
        raise ModelError(f"the tokenizer has {file.tokenizer.size} tokens, but the embedding only {config.V} rows")
    return inventory


def _on_gpu(
    file: "ModelFile",
    config: "ModelConfig",
    device: str,
    asked: _Asked,
    on_load: OnLoad | None,
    profiles: Path | None,
) -> Loaded | None:
    """The network on a GPU; None if the machine has none, or may take none of its memory, and any device will do.

    Raises:
        RequestError: it cannot run there; says why.
    """
    from strata.model import load_weights

    card = gpu.find(device)
    if card is None or (asked.vram == 0 and device == AUTO):
        if device == AUTO:
            return None
        raise RequestError("torch finds no GPU it can use here; `strata doctor` says what this machine has")
    gpu.check_card(card)
    gpu.check_kv(asked.wishes.kv)
    gpu.check_shapes(config)
    inventory = _inventory(file, config)
    if inventory.widened:
        raise RequestError(f"the GPU has no kernels for matrices of type {', '.join(inventory.widened)}")
    made = asked.plan(file, card)
    if made.vram is None:
        raise RequestError(f"none of the memory of {card.name} may be taken; leave --vram out, or give it more")
    config = replace(config, context=made.context)
    weights, config = _with_draft(file, load_weights(file.directory, config), config, made)
    from strata.loading.storage import Storage, hosted
    from strata.loading.tiers import Source

    storage = Storage()
    if made.table in {Table.RAM, Table.SSD}:
        mode = asked.ngram or ("ram" if made.table is Table.RAM else "direct")
        weights, storage = hosted(weights, file.directory, mode, gpu.device_of(card))
    learned = None if profiles is None else Learned(profiles, file.fingerprint)
    try:
        network, placement = gpu.network(
            card, weights, config, made, on_load, threads=asked.threads, source=Source(file.directory, storage),
            learned=learned,
        )  # fmt: skip
    except BaseException:
        storage.close()
        raise
    return Loaded(network, inventory.unused, placement, storage, learned)


def _on_cpu(file: "ModelFile", config: "ModelConfig", asked: _Asked, on_load: OnLoad | None, why: str) -> Loaded:
    import torch

    from strata.experts.pool import choose, read
    from strata.ops import workers

    inventory = _inventory(file, config)
    made, threads = asked.plan(file, None), asked.threads
    config = replace(config, context=made.context)
    if threads is None and config.V * config.H < SMALL:
        threads = 1
    workers.use(choose(read(), threads).cpus if threads != 1 else (None,))
    if threads is not None:
        torch.set_num_threads(threads)
    before = private()
    while True:
        try:
            network, storage = _in_ram(file, config, made, asked, on_load)
            break
        except (ScarceError, MemoryError) as error:  # a limit that nobody thought of, such as `ulimit -v`
            smaller, reason = retry(made), str(error)
        gc.collect()
        log.warning(
            "memory that was planned could not be had (%s); trying again with %s for experts",
            reason, shown_bytes(smaller.ram.bytes_of(least.EXPERTS)),
        )  # fmt: skip
        made = smaller
    known = (least.TABLE, least.TABLE_ROWS, *([least.EXPERTS] if made.arena is Arena.PART else []))
    process = private() - sum(made.ram.bytes_of(part) for part in known)
    more = max(0, process - max(before, least.HOST_ALONE))
    taken = compared(made, made.ram.free + made.ram.bytes_of(least.SYSTEM) - more)
    placement = Placement.on_cpu(made, why, taken if taken.told else None)
    return Loaded(network, inventory.unused, placement, storage)


def _in_ram(
    file: "ModelFile", config: "ModelConfig", made: "Plan", asked: _Asked, on_load: OnLoad | None
) -> "tuple[Network, Storage]":
    """Weights where a plan has them, without a GPU.

    Raises:
        MemoryError: the system does not give what was planned.
    """
    from strata.loading.storage import arranged
    from strata.model import Network, load_weights
    from strata.ops import bind

    part, ram = made.arena is Arena.PART, made.ram
    first = ram.bytes_of(least.DENSE) + (0 if part else ram.bytes_of(least.EXPERTS))
    first -= made.sizes.draft_stored if file.draft and made.drafts else 0  # which is read behind all else
    total = first + (ram.bytes_of(least.EXPERTS) if part else 0) + ram.bytes_of(least.TABLE)
    own = config if made.drafts else replace(config, mtp=False)
    weights = load_weights(_Watched(file.directory, total, on_load, touch_experts=not part), own)
    weights, storage = arranged(
        weights, file.directory, own, made, asked.ngram,
        (lambda done: on_load(min(first + done, total), total)) if on_load else None,
    )  # fmt: skip
    if on_load:
        on_load(total, total)
    try:
        weights, own = _with_draft(file, weights, own, made)
        return Network(own, weights, bind("cpu", own)), storage
    except BaseException:
        storage.close()
        raise


def _with_draft(
    file: "ModelFile", weights: "Weights", config: "ModelConfig", made: "Plan"
) -> "tuple[Weights, ModelConfig]":
    """The same with the draft head that was pulled beside the model, if there is one; without any if none is planned.

    Raises:
        ModelError: it belongs to another model.
    """
    from strata.loading.draft import of_the_head
    from strata.model import with_draft_head

    if not made.drafts:
        return replace(weights, mtp=None), replace(config, mtp=False)
    if file.draft is None:
        return weights, config
    with of_the_head(file.draft):
        return with_draft_head(weights, config, file.draft)


class _Watched:
    """A directory that reports what has been loaded from it."""

    def __init__(
        self, directory: TensorDirectory, total: int, on_load: OnLoad | None, *, touch_experts: bool = True
    ) -> None:
        self._touch_experts = touch_experts
        self._directory = directory
        self._total = total
        self._on_load = on_load
        self._done = 0

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._directory.tensors

    def load(self, name: str) -> NDArray[np.float32]:
        values = self._directory.load(name)
        self._report(values.nbytes)
        return values

    def raw(self, name: str) -> NDArray[np.uint8]:
        stored = self._directory.raw(name)
        if not self._touch_experts and is_expert(name):
            return stored
        touch(stored, self._report)  # so that it is in memory when the first token needs it, and progress is true
        return stored

    def rows(self, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
        return self._directory.rows(name, ids)

    def _report(self, nbytes: int) -> None:
        self._done += nbytes
        if self._on_load:
            self._on_load(min(self._done, self._total), self._total)  # scale tensors are not in the total
