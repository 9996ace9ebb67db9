"""The two files that ship, and which block type each of their tensors gets."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from pebble.shape import Shape
from pebble.shelf.metadata import metadata
from pebble.shelf.tensors import tensors
from strata.formats import by_name, dequantise, quantise
from strata.gguf import TensorData, write_model

# Small, and sensitive: they stay in full precision in both files.
_FULL = ("ffn_gate_inp.weight", "inject.weight", "ssm_alpha.weight", "ssm_beta.weight", "conv1d.weight")


@dataclass(frozen=True, slots=True)
class Mix:
    """Block types of the routed experts; everything else is Q8_0 or F32."""

    file: str
    gate_up: str
    down: str
    file_type: int

    def type_of(self, name: str, ndim: int) -> str:
        """The block type of a tensor."""
        if ndim == 1 or name.endswith(_FULL):
            return "F32"
        if name.endswith(("ffn_gate_exps.weight", "ffn_up_exps.weight")):
            return self.gate_up
        return self.down if name.endswith("ffn_down_exps.weight") else "Q8_0"


MIXES = (
    Mix("pebble-q8_0.gguf", "Q8_0", "Q8_0", 7),
    Mix("pebble-iq3.gguf", "IQ3_S", "IQ4_NL", 26),
)


def write(
    state: Mapping[str, Tensor], shape: Shape, tokenizer: Path, template: str, folder: Path
) -> dict[str, dict[str, float]]:
    """Write both files; returns the root mean square error of each block type in each file, relative to the weights."""
    errors: dict[str, dict[str, float]] = {}
    for mix in MIXES:
        made: list[TensorData] = []
        sums: dict[str, np.ndarray] = {}
        for name, values in tensors(state, shape):
            kind = by_name(mix.type_of(name, values.ndim))
            data = quantise(kind, np.ascontiguousarray(values, np.float32))
            made.append(TensorData(name, values.shape, kind, data))
            off = np.square(dequantise(kind, data) - values).sum(dtype=np.float64)
            whole = np.square(values).sum(dtype=np.float64)
            sums[kind.name] = sums.get(kind.name, np.zeros(2)) + np.array([off, whole])
        write_model(folder / mix.file, metadata(shape, tokenizer, template, mix.file_type), made)
        errors[mix.file] = {kind: float((off / whole) ** 0.5) for kind, (off, whole) in sums.items()}
    return errors
