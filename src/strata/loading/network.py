"""The network of a model file, its weights in memory."""

import logging
from collections.abc import Callable, Mapping, Sequence
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
from strata.loading.ram import measure
from strata.loading.stored import check_storage, is_expert
from strata.loading.stretch import stretched
from strata.loading.touch import touch

if TYPE_CHECKING:
    from strata.loading.files import ModelFile
    from strata.loading.storage import Storage
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
    conversations: int = CONVERSATIONS,
    profiles: Path | None = None,
    on_load: OnLoad | None = None,
) -> Loaded:
    """Read the weights of an open file.

    All that can be known to be wrong is found before memory is taken.

    Args:
        file: the model.
        threads: CPU threads to compute with, in the whole process; None is one for a small model, where sharing the
            work takes longer than doing it, and for others one per physical (performance) core of one memory node, as
            far as the container's share of processor time allows.
        context: tokens a conversation may hold, see `strata.loading.stretch`.
        rope_scale: factor of YaRN; 1 is off, None leaves what the file has.
        kv: type in which keys and values are kept, see `strata.model.kv`; None is f32 on the CPU, bf16 on a GPU, which
            has q8 as well.
        device: "cpu"; "cuda" or "cuda:N"; or "auto", which takes the first GPU if the model can run there and is not
            too large for it, and else the CPU, and says why.
        ram: most bytes of main memory for weights; routed experts beyond it are read from the file when rows visit
            them. None is what is available.
        ngram: how rows of the n-gram table are read, see `strata.loading.storage`.
        vram: most bytes of the GPU's memory; routed experts beyond it stay in main memory and are computed there. None
            is what is free, for a model that fits whole.
        conversations: that run at once, for which a GPU's memory is divided.
        profiles: folder in which what a GPU's cache of experts learns is kept; None keeps nothing.
        on_load: called with (bytes loaded, bytes to load) after each tensor; bytes as they stay in memory.

    Raises:
        ModelError: the file holds no complete model of a supported architecture.
        TextError: its tokenizer cannot be used.
        StrataError: it does not fit into memory.
        RequestError: threads is no integer from 1 to 1024, the model cannot have such a context or cache, or it cannot
            run on the GPU that was asked for.
    """
    from strata.model import load_config

    check_threads(threads)
    check_device(device)
    check_storage(ram, ngram)
    try:
        config = cached_as(stretched(load_config(file.metadata), context, rope_scale), kv)
        why = ""
        if device != CPU:
            try:
                found = _on_gpu(file, config, device, kv, conversations, on_load, ngram, vram, threads, profiles)
                if found is not None:
                    return found
            except RequestError as error:
                if device != AUTO:
                    raise
                why = str(error)
                log.info("not on the GPU: %s", why)
        if config.qsa.kv == gpu.KV:
            raise RequestError(f"keys and values are kept as {gpu.KV} on a GPU only; leave --kv (kv=) out")
        return _on_cpu(file, config, threads, on_load, why, ram, ngram)
    except ModelError as error:
        raise file.error(error) from error


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
    kv: str | None,
    conversations: int,
    on_load: OnLoad | None,
    ngram: str | None,
    vram: int | None,
    threads: int | None,
    profiles: Path | None,
) -> Loaded | None:
    """The network on a GPU; None if the machine has none and any device will do.

    Raises:
        RequestError: it cannot run there; says why.
    """
    from strata.model import load_weights

    card = gpu.find(device)
    if card is None:
        if device == AUTO:
            return None
        raise RequestError("torch finds no GPU it can use here; `strata doctor` says what this machine has")
    gpu.check_card(card)
    gpu.check_kv(kv)
    gpu.check_shapes(config)
    inventory = _inventory(file, config)
    if inventory.widened:
        raise RequestError(f"the GPU has no kernels for matrices of type {', '.join(inventory.widened)}")
    weights, config = _with_draft(file, load_weights(file.directory, config), config)
    storage = None
    if ngram is not None:
        import torch

        from strata.loading.storage import hosted

        weights, storage = hosted(weights, file.directory, ngram, torch.device(f"cuda:{card.index}"))
    learned = None if profiles is None else Learned(profiles, file.fingerprint)
    network, placement = gpu.network(
        card, weights, config, conversations, on_load, vram=vram, threads=threads, learned=learned
    )
    return Loaded(network, inventory.unused, placement, storage, learned)


def _on_cpu(
    file: "ModelFile",
    config: "ModelConfig",
    threads: int | None,
    on_load: OnLoad | None,
    why: str,
    most: int | None,
    ngram: str | None,
) -> Loaded:
    import torch

    from strata.experts.pool import choose, read
    from strata.model import Network, load_weights
    from strata.ops import bind, workers

    inventory = _inventory(file, config)
    draft = sum(info.nbytes for info in file.draft.tensors.values()) if file.draft else 0
    from strata.loading.storage import arranged, divide

    division = divide(file.directory, config, inventory.bytes + draft, measure(), most, ngram)
    if threads is None and config.V * config.H < SMALL:
        threads = 1
    workers.use(choose(read(), threads).cpus if threads != 1 else (None,))
    if threads is not None:
        torch.set_num_threads(threads)
    first = division.dense - draft + (division.experts if division.slots is None else 0)
    total = first + min(division.slots or 0, division.experts) + division.table
    weights = load_weights(_Watched(file.directory, total, on_load, touch_experts=division.slots is None), config)
    weights, storage = arranged(
        weights, file.directory, config, division, ngram,
        (lambda done: on_load(min(first + done, total), total)) if on_load else None,
    )  # fmt: skip
    if on_load:
        on_load(total, total)
    weights, config = _with_draft(file, weights, config)
    placement = Placement(CPU, weights=first + draft, why=why, storage=str(division))
    return Loaded(Network(config, weights, bind("cpu", config)), inventory.unused, placement, storage)


def _with_draft(file: "ModelFile", weights: "Weights", config: "ModelConfig") -> "tuple[Weights, ModelConfig]":
    """The same with the draft head that was pulled beside the model, if there is one.

    Raises:
        ModelError: it belongs to another model.
    """
    from strata.model import with_draft_head

    if file.draft is None:
        return weights, config
    try:
        return with_draft_head(weights, config, file.draft)
    except ModelError as error:
        raise ModelError(f"{file.draft.files[0]}: {error}; `strata pull --no-draft` goes without it") from error


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
