"""The tiny model as a file whose matrices stay quantised in memory: what `strata.load` runs on, with random weights."""

from pathlib import Path

from strata.formats import by_name, quantise
from strata.gguf import TensorData, write_model
from strata.text import pebble_template
from support import tiny
from support.mtp_oracle import mtp_oracle
from support.vocab import vocabulary_metadata


def write_stored(path: Path, *, narrow: str = "Q8_0", name: str = "other", words: bool = False) -> Path:
    """The tiny model with a draft head, quantised from its own weights; vectors and convolutions float32.

    With `words` it has a tokenizer, so that it can be loaded as a whole.
    """
    arrays = tiny.tensors(name) | tiny.mtp_tensors(name, mtp_oracle(name))
    data = []
    for key, values in arrays.items():
        keep = values.ndim == 1 or "conv1d" in key or "ffn_gate_inp" in key
        kind = by_name("F32" if keep or values.shape[-1] % 32 else narrow)
        data.append(TensorData(key, values.shape, kind, quantise(kind, values)))
    metadata = tiny.metadata(tiny.SETTINGS[name], mtp=True)
    if words:
        metadata |= vocabulary_metadata(entries=470, padding=16, chat_template=pebble_template())
    return write_model(path, metadata, data)[0]
