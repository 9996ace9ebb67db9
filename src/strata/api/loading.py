"""From a file to a model that answers."""

from pathlib import Path

from strata.api.model import Model
from strata.loading.files import ModelFile
from strata.loading.network import OnLoad, check_threads, load_network


def load(path: str | Path | None = None, *, threads: int | None = None, on_load: OnLoad | None = None) -> Model:
    """Load a model.

    All that can be known to be wrong is found before memory is taken: a damaged file, another architecture, missing
    tensors, too little RAM.

    Args:
        path: a GGUF file, any file of a split set, or the name of a bundled model ("pebble", "pebble-iq3"); None is
            Pebble.
        threads: CPU threads torch uses, in the whole process; None is one for a small model, where sharing the work
            takes longer than doing it, and torch's own choice for others.
        on_load: called with (bytes loaded, bytes to load) after each tensor; bytes of float32.

    Raises:
        GgufError: the file or its set is damaged or incomplete.
        ModelError: the file holds no complete model of a supported architecture.
        TextError: its tokenizer or chat template cannot be used.
        StrataError: it does not fit into memory, or there is no such file.
        RequestError: threads is no integer from 1 to 1024.
    """
    check_threads(threads)
    file = ModelFile.open(path)
    sampling = file.sampling
    network, unused = load_network(file, threads=threads, on_load=on_load)
    return Model(network, file.tokenizer, file.template, sampling, unused)
