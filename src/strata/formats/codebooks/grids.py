"""The six codeword grids of the IQ1, IQ2 and IQ3 types.

A grid is a fixed list of vectors of 4 or 8 levels; a block stores indices into it. Read as a number with one digit
per weight, the first weight lowest, the codewords of every grid are in rising order. ``grids.bin`` keeps the gaps
between those numbers: 16-bit little-endian, the grids one after another in the order of ``_LAYOUTS``, deflated.
"""

import zlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import numpy as np

from strata.formats.block import F32


@dataclass(frozen=True, slots=True)
class _Layout:
    words: int
    bits: int  # per digit
    levels: tuple[int, ...]
    weights: int = 8


_IQ2 = (8, 25, 43)
_LAYOUTS = {
    "IQ2_XXS": _Layout(256, 2, _IQ2),
    "IQ2_XS": _Layout(512, 2, _IQ2),
    "IQ2_S": _Layout(1024, 2, _IQ2),
    "IQ3_XXS": _Layout(256, 3, (4, 12, 20, 28, 36, 44, 52, 62), weights=4),
    "IQ3_S": _Layout(512, 3, (1, 3, 5, 7, 9, 11, 13, 15), weights=4),
    "IQ1": _Layout(2048, 2, (-1, 0, 1)),
}


@cache
def grid(name: str) -> F32:
    """The codewords of one grid, read-only.

    Args:
        name: "IQ1" (for IQ1_S and IQ1_M), "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS" or "IQ3_S".

    Returns:
        ``float32 [codewords, 4 or 8]``.
    """
    start = 0
    for other, layout in _LAYOUTS.items():
        if other == name:
            break
        start += layout.words
    layout = _LAYOUTS[name]
    numbers = np.cumsum(_gaps()[start : start + layout.words], dtype=np.uint32)
    digits = (numbers[:, None] >> np.arange(0, layout.weights * layout.bits, layout.bits)) & ((1 << layout.bits) - 1)
    words: F32 = np.array(layout.levels, dtype=np.float32)[digits]
    words.flags.writeable = False
    return words


@cache
def _gaps() -> np.ndarray:
    packed = files(__package__).joinpath("grids.bin").read_bytes()
    return np.frombuffer(zlib.decompress(packed), dtype="<u2")
