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
_LOOK_UP_NEAR = (
    "{{{{ .reg .b32 t, a, b; {shift}; lop3.b32 t, t, 0x4444, $3, 0xEA; "
    "prmt.b32 a, $4, {{1}}, $1; prmt.b32 b, $5, {{3}}, $1; prmt.b32 $0, a, b, t; }}}}"
)
_ENTRY = (
    "{ .reg .b32 o; .reg .b64 p; .reg .b16 h; SHIFT; lop3.b32 o, o, 0x1fe, $2, 0xEA; mov.b64 p, {o, $3}; "
    "ld.global.u16 h, [p]; cvt.u32.u16 $0, h; }"
)


def _shifted(target: str, source: str, by: int) -> str:
    """An instruction: to the right, or to the left by less than nothing."""
    return f"shr.u32 {target}, {source}, {by}" if by >= 0 else f"shl.b32 {target}, {source}, {-by}"


ENTRY = tl.constexpr(tuple(_ENTRY.replace("SHIFT", _shifted("o", "$1", 8 * byte - 1)) for byte in range(4)))
"""By byte of an index: the codeword of that number, of a grid that starts at a multiple of its 512 bytes."""

SIGNS = (-2, -1, 0, 1, 14, 15, 16, 17)
"""How far each group of four weights' signs are to the right of bits 2, 6, 10, 14 in a word of 32."""


def _table(assembly: str, values: list[int]) -> tl.constexpr:
    bytes_ = np.array(values, dtype=np.int8)
    words = [f"0x{word:08x}" for word in bytes_.view("<u4").tolist()]
    low, high = np.resize(bytes_, 16).view("<i8").tolist()
    return tl.constexpr((assembly.format(*words), low, high))


def _both_signs(levels: list[int]) -> tl.constexpr:
    return _table(_LOOK_UP_SIGNED, [*levels, *(-level for level in levels)])


IQ4 = _table(_LOOK_UP_16, IQ4_LEVELS.astype(int).tolist())
E2M1 = _table(_LOOK_UP_16, E2M1_LEVELS.astype(int).tolist())
_IQ3_XXS = [4, 12, 20, 28, 36, 44, 52, 62]
IQ3_XXS = _both_signs(_IQ3_XXS)
IQ3_XXS_NEAR = tl.constexpr(
    tuple(
        _table(_LOOK_UP_NEAR.format(shift=_shifted("t", "$2", by)), [*_IQ3_XXS, *(-level for level in _IQ3_XXS)]).value[
            0
        ]
        for by in SIGNS
    )
)
"""By group of four: a look-up whose other constants are in registers; see `codewords`."""

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

    Behind IQ3_XXS's grid follow three words, each twice: the selectors of no sign, and the first four levels and their
    negations. What threads load from two places stays in registers; a constant is copied anew for every use.
    """
    if name not in _GRIDS:
        return torch.zeros(1, dtype=torch.int16, device=device)
    words = grid(_GRIDS[name])
    digits = np.searchsorted(np.unique(words), words).astype(np.uint16)
    shifts = np.array([0, 4, 8, 12, 2, 6, 10, 14], dtype=np.uint16)[: digits.shape[1]]
    entries = np.bitwise_or.reduce(digits << shifts, axis=1).astype(np.uint16)
    if name == "IQ3_XXS":
        levels = np.array(_IQ3_XXS[:4], dtype=np.int8)
        behind = np.concatenate([np.array([0x10, 0x32, 0, 0], dtype=np.int8), levels, -levels]).view(np.uint32)
        entries = np.concatenate([entries, np.repeat(behind, 2).view(np.uint16)])
    return torch.from_numpy(entries.view(np.int16)).to(device)
