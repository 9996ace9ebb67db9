"""From a file to a model that answers."""

import mmap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from strata.api import ram
from strata.api.bundled import find
from strata.api.defaults import file_sampling
from strata.api.model import Model
from strata.errors import ModelError, RequestError
from strata.gguf import TensorDirectory, TensorInfo, open_model
from strata.text import ChatTemplate, Tokenizer

SMALL = 4_000_000
"""Weights of an output matrix below which one thread is fastest: Pebble's has 0.7 million, the real model's 636."""

THREADS = range(1, 1025)
"""Threads that may be asked for; where the system refuses to start so many, torch ends the process."""

OnLoad = Callable[[int, int], None]


def load(path: str | Path | None = None, *, threads: int | None = None, on_load: OnLoad | None = None) -> Model:
    """Load a model.

    All that can be known to be wrong is found before memory is taken: a damaged file, another architecture, missing
    tensors, too little RAM.

    Args:
        path: a GGUF file, any file of a split set, or the name of a bundled model ("pebble", "pebble-iq3"); None is
            Pebble.
        threads: CPU threads to compute with, in the whole process; None is one for a small model, where sharing the
            work takes longer than doing it, and for others one per physical (performance) core of one memory node, as
            far as the container's share of processor time allows.
        on_load: called with (bytes loaded, bytes to load) after each tensor; bytes as they stay in memory.

    Raises:
        GgufError: the file or its set is damaged or incomplete.
        ModelError: the file holds no complete model of a supported architecture.
        TextError: its tokenizer or chat template cannot be used.
        StrataError: it does not fit into memory, or there is no such file.
        RequestError: threads is no integer from 1 to 1024.
    """
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads not in THREADS):
        raise RequestError(f"threads must be an integer from 1 to {THREADS[-1]}, not {threads!r}")
    directory = open_model(find(path))
    try:
        return _load(directory, threads, on_load)
    except ModelError as error:
        raise ModelError(f"{directory.files[0]}: {error}") from error


def _load(directory: TensorDirectory, threads: int | None, on_load: OnLoad | None) -> Model:
    import torch

    from strata.experts.pool import choose, read
    from strata.model import Network, load_config, load_weights, take_inventory
    from strata.ops import bind, workers

    metadata = directory.metadata
    config = load_config(metadata)
    sampling = file_sampling(metadata)
    inventory = take_inventory(directory, config)
    template = ChatTemplate.from_metadata(metadata) if "tokenizer.chat_template" in metadata else None
    tokenizer = Tokenizer.from_metadata(metadata)
    if tokenizer.size > config.V:
        raise ModelError(f"the tokenizer has {tokenizer.size} tokens, but the embedding only {config.V} rows")
    ram.check(inventory.bytes, ram.measure())
    if threads is None and config.V * config.H < SMALL:
        threads = 1
    workers.use(choose(read(), threads).cpus if threads != 1 else (None,))
    if threads is not None:
        torch.set_num_threads(threads)
    weights = load_weights(_Watched(directory, inventory.bytes, on_load), config)
    return Model(Network(config, weights, bind("cpu", config)), tokenizer, template, sampling, inventory.unused)


class _Watched:
    """A directory that reports what has been loaded from it."""

    def __init__(self, directory: TensorDirectory, total: int, on_load: OnLoad | None) -> None:
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
        # One byte of every page, so that the file is in memory when the first token needs it, and progress is true.
        stored.reshape(-1)[:: mmap.PAGESIZE].max(initial=0)
        self._report(stored.nbytes)
        return stored

    def rows(self, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
        return self._directory.rows(name, ids)

    def _report(self, nbytes: int) -> None:
        self._done += nbytes
        if self._on_load:
            self._on_load(min(self._done, self._total), self._total)  # scale tensors are not in the total
