"""One quantised block type: its layout as data, and the functions that read and write it."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from strata.errors import FormatError

U8 = NDArray[np.uint8]
F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class BlockType:
    """A GGUF tensor type (gguf-tensors spec, section 6).

    Attributes:
        name: the name llama.cpp and the public files use, e.g. ``"Q8_0"``.
        id: the type id stored in the file. Two layouts share id 42; see ``strata.formats.resolve``.
        weights: weights per block.
        bytes: bytes per block.
        dequantise: ``uint8 [n, bytes] -> float32 [n, weights]``.
        quantise: ``float32 [n, weights] -> uint8 [n, bytes]``, or None where we do not write the type.
        largest: the largest magnitude ``quantise`` takes. A scale that overflows float16 would turn a whole block
            into infinities, so everything with a float16 field stops at float16's own largest number.
    """

    name: str
    id: int
    weights: int
    bytes: int
    dequantise: Callable[[U8], F32] = field(repr=False)
    quantise: Callable[[F32], U8] | None = field(default=None, repr=False)
    largest: float = 65504.0

    @property
    def bits(self) -> float:
        """Bits per weight, scales included."""
        return 8 * self.bytes / self.weights

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of ``width`` weights; rows start on a block border."""
        if width <= 0 or width % self.weights:
            raise FormatError(f"a {self.name} row must be a multiple of {self.weights} weights, not {width}")
        return width // self.weights * self.bytes
