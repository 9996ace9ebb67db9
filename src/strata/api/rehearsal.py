"""Going through a model's loading without reading a weight: what is missing, unused, and how large the rest becomes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from strata.gguf import TensorDirectory, TensorInfo
from strata.model import ModelConfig, load_weights


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What loading would do.

    Attributes:
        loaded: names of tensors that would be dequantised into memory.
        unused: names of tensors nothing asks for.
        needed: most bytes that loading takes at once, everything being float32.
    """

    loaded: frozenset[str]
    unused: tuple[str, ...]
    needed: int


def rehearse(directory: TensorDirectory, config: ModelConfig) -> Rehearsal:
    """Check every tensor's presence and shape; those of NVFP4 scales are left to the loading itself.

    Raises:
        ModelError: a tensor is missing or has another shape.
    """
    scales = {
        name
        for name in directory.tensors
        if name.endswith(".scale") and f"{name.removesuffix('.scale')}.weight" in directory.tensors
    }
    hollow = _Hollow(directory, {name: info for name, info in directory.tensors.items() if name not in scales})
    _, unused = load_weights(hollow, config)
    sizes = {name: 4 * prod(directory.tensors[name].shape) for name in hollow.loaded}
    # While a tensor is multiplied by its scales, it is there twice.
    twice = max((sizes.get(f"{name.removesuffix('.scale')}.weight", 0) for name in scales), default=0)
    return Rehearsal(frozenset(hollow.loaded), tuple(unused), sum(sizes.values()) + twice)


class _Hollow:
    """Stands in for a directory: every tensor has its shape, all its elements are one and the same zero."""

    def __init__(self, directory: TensorDirectory, tensors: Mapping[str, TensorInfo]) -> None:
        self._directory = directory
        self.tensors = tensors
        self.loaded: set[str] = set()

    def load(self, name: str) -> NDArray[np.float32]:
        self.loaded.add(name)
        shape = self.tensors[name].shape
        return np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), shape, (0,) * len(shape))

    def rows(self, name: str, ids: Sequence[int]) -> NDArray[np.float32]:
        return self._directory.rows(name, ids)
