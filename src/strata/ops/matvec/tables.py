"""Tables that kernels look weights up in: constants of an instruction, and grids in device memory.

A constant table is ``(assembly, low, high)``: the instructions that look up with the table inside them, and for their
twins the sixteen bytes as two 64-bit numbers.
"""

from functools import cache

import numpy as np
import torch
import triton.language as tl
from torch import Tensor

from strata.formats.codebooks.grids import grid
from strata.formats.families.iq4 import LEVELS as IQ4_LEVELS
from strata.formats.families.microscaling import LEVELS as E2M1_LEVELS

_SELECT = "prmt.b32 a, {0}, {1}, m; prmt.b32 b, {2}, {3}, m; prmt.b32 {out}, a, b, {signs};"
_LOOK_UP_16 = (
    "{{ .reg .b32 m, s, a, b; and.b32 m, $2, 0x77777777; shr.u32 s, $2, 1; "
    "lop3.b32 s, s, 0x44444444, 0x32103210, 0xEA; "
    + _SELECT.replace("{out}", "$0").replace("{signs}", "s")
    + " shr.u32 m, m, 16; shr.u32 s, s, 16; "
    + _SELECT.replace("{out}", "$1").replace("{signs}", "s")
    + " }}"
)
_LOOK_UP_SIGNED = (
    "{{ .reg .b32 m, a, b; mov.b32 m, $1; " + _SELECT.replace("{out}", "$0").replace("{signs}", "$2") + " }}"
)
_LOOK_UP_8 = "prmt.b32 $0, {0}, {1}, $1;"


def _table(assembly: str, values: list[int]) -> tl.constexpr:
    bytes_ = np.array(values, dtype=np.int8)
    words = [f"0x{word:08x}" for word in bytes_.view("<u4").tolist()]
    low, high = np.resize(bytes_, 16).view("<i8").tolist()
    return tl.constexpr((assembly.format(*words), low, high))


def _both_signs(levels: list[int]) -> tl.constexpr:
    return _table(_LOOK_UP_SIGNED, [*levels, *(-level for level in levels)])


IQ4 = _table(_LOOK_UP_16, IQ4_LEVELS.astype(int).tolist())
E2M1 = _table(_LOOK_UP_16, E2M1_LEVELS.astype(int).tolist())
IQ3_XXS = _both_signs([4, 12, 20, 28, 36, 44, 52, 62])
IQ3_S = _both_signs([1, 3, 5, 7, 9, 11, 13, 15])
IQ2 = _both_signs([8, 25, 43, 0, 0, 0, 0, 0])
IQ1 = _table(_LOOK_UP_8, [-7, 1, 9, 0, -9, -1, 7, 0])
Q2_0 = _table(_LOOK_UP_8, [-1, 0, 1, 2, 0, 0, 0, 0])

_GRIDS = {"IQ3_XXS": "IQ3_XXS", "IQ3_S": "IQ3_S", "IQ2_XS": "IQ2_XS", "IQ2_S": "IQ2_S", "IQ1_M": "IQ1"}


@cache
def codewords(name: str, device: torch.device) -> Tensor:
    """The grid of a type as selectors: ``int16 [codewords]``; one zero for types without.

    A codeword of four weights has its levels' places in four nibbles. One of eight has two bits for each: those of
    weights 0-3 at the bottom of the nibbles, of weights 4-7 above them. So a grid takes two bytes an entry, half of
    its weights as bytes or less, which matters: random look-ups are served a 128-byte line of the L1 cache at a time.
    """
    if name not in _GRIDS:
        return torch.zeros(1, dtype=torch.int16, device=device)
    words = grid(_GRIDS[name])
    digits = np.searchsorted(np.unique(words), words).astype(np.uint16)
    shifts = np.array([0, 4, 8, 12, 2, 6, 10, 14], dtype=np.uint16)[: digits.shape[1]]
    entries = np.bitwise_or.reduce(digits << shifts, axis=1).astype(np.uint16)
    return torch.from_numpy(entries.view(np.int16)).to(device)
