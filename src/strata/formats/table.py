"""The table of all block types, and finding one by name or by what a file says."""

import math
from collections.abc import Sequence

from strata.errors import FormatError
from strata.formats.block import BlockType
from strata.formats.families import (
    iq1,
    iq2,
    iq3,
    iq4,
    k_minimum,
    k_symmetric,
    legacy,
    microscaling,
    plain,
    q1_0,
    q2_0,
    ternary,
)

TYPES: tuple[BlockType, ...] = (
    BlockType("F32", 0, 1, 4, plain.dequantise_f32, plain.quantise_f32, largest=math.inf),
    BlockType("F16", 1, 1, 2, plain.dequantise_f16, plain.quantise_f16),
    BlockType("Q4_0", 2, 32, 18, legacy.dequantise_q4_0, legacy.quantise_q4_0),
    BlockType("Q4_1", 3, 32, 20, legacy.dequantise_q4_1, legacy.quantise_q4_1),
    BlockType("Q5_0", 6, 32, 22, legacy.dequantise_q5_0, legacy.quantise_q5_0),
    BlockType("Q5_1", 7, 32, 24, legacy.dequantise_q5_1, legacy.quantise_q5_1),
    BlockType("Q8_0", 8, 32, 34, legacy.dequantise_q8_0, legacy.quantise_q8_0),
    BlockType("Q2_K", 10, 256, 84, k_minimum.dequantise_q2_k),
    BlockType("Q3_K", 11, 256, 110, k_symmetric.dequantise_q3_k, k_symmetric.quantise_q3_k),
    BlockType("Q4_K", 12, 256, 144, k_minimum.dequantise_q4_k, k_minimum.quantise_q4_k),
    BlockType("Q5_K", 13, 256, 176, k_minimum.dequantise_q5_k, k_minimum.quantise_q5_k),
    BlockType("Q6_K", 14, 256, 210, k_symmetric.dequantise_q6_k, k_symmetric.quantise_q6_k),
    BlockType("IQ2_XXS", 16, 256, 66, iq2.dequantise_iq2_xxs),
    BlockType("IQ2_XS", 17, 256, 74, iq2.dequantise_iq2_xs, iq2.quantise_iq2_xs),
    BlockType("IQ3_XXS", 18, 256, 98, iq3.dequantise_iq3_xxs, iq3.quantise_iq3_xxs),
    BlockType("IQ1_S", 19, 256, 50, iq1.dequantise_iq1_s),
    BlockType("IQ4_NL", 20, 32, 18, iq4.dequantise_iq4_nl, iq4.quantise_iq4_nl),
    BlockType("IQ3_S", 21, 256, 110, iq3.dequantise_iq3_s, iq3.quantise_iq3_s),
    BlockType("IQ2_S", 22, 256, 82, iq2.dequantise_iq2_s, iq2.quantise_iq2_s),
    BlockType("IQ4_XS", 23, 256, 136, iq4.dequantise_iq4_xs),
    BlockType("IQ1_M", 29, 256, 56, iq1.dequantise_iq1_m),
    # BF16's largest finite number; float32 values above it would round to infinity.
    BlockType("BF16", 30, 1, 2, plain.dequantise_bf16, plain.quantise_bf16, largest=float.fromhex("0x1.fep127")),
    BlockType("TQ1_0", 34, 256, 54, ternary.dequantise_tq1_0, ternary.quantise_tq1_0),
    BlockType("TQ2_0", 35, 256, 66, ternary.dequantise_tq2_0, ternary.quantise_tq2_0),
    BlockType("MXFP4", 39, 32, 17, microscaling.dequantise_mxfp4, microscaling.quantise_mxfp4, largest=math.inf),
    BlockType("NVFP4", 40, 64, 36, microscaling.dequantise_nvfp4),
    BlockType("Q1_0", 41, 128, 18, q1_0.dequantise_q1_0, q1_0.quantise_q1_0),
    BlockType("Q2_0", 42, 64, 18, q2_0.dequantise_q2_0, q2_0.quantise_q2_0),
    BlockType("Q2_0_128", 42, 128, 34, q2_0.dequantise_q2_0, q2_0.quantise_q2_0),
)

_BY_NAME = {entry.name: entry for entry in TYPES}


def _names(entries: Sequence[BlockType] = TYPES) -> str:
    return ", ".join(entry.name for entry in entries)


def by_name(name: str) -> BlockType:
    """The type of that name.

    Raises:
        FormatError: if there is none.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise FormatError(f"no block type is called {name!r}; there are {_names()}") from None


def resolve(type_id: int, shape: Sequence[int], nbytes: int | None = None) -> BlockType:
    """The type of a tensor in a file.

    Id 42 stands for two layouts (gguf-tensors spec, section 6). They differ in length, so the tensor's bytes decide:
    the layout is the longest one that fits. ``nbytes`` may therefore also be the distance to the next tensor, padding
    included; only below 2048 weights could padding of 32 hide the difference, and then the llama.cpp layout is taken.

    Args:
        type_id: as stored in the file.
        shape: in torch order, the width of a row last.
        nbytes: how many bytes the tensor has, or has at most.

    Raises:
        FormatError: for an unknown id, a width that is not whole blocks, or too few bytes.
    """
    layouts = [entry for entry in TYPES if entry.id == type_id]
    if not layouts:
        raise FormatError(f"block type id {type_id} is unknown; this version reads {_names()}")
    what = f"a tensor of type id {type_id} and shape {list(shape)}"
    if not shape or min(shape) <= 0:
        raise FormatError(f"{what} has no weights; every dimension must be at least 1")
    fitting = [entry for entry in layouts if shape[-1] % entry.weights == 0]
    if not fitting:
        sizes = " or ".join(f"{entry.weights} ({entry.name})" for entry in layouts)
        raise FormatError(f"{what} needs rows of a multiple of {sizes} weights, not {shape[-1]}")
    needed = {math.prod(shape[:-1]) * entry.row_bytes(shape[-1]): entry for entry in fitting}
    if nbytes is None:
        if len(fitting) > 1:
            raise FormatError(f"{what} could be {_names(fitting)}: its length in bytes must be given")
        return fitting[0]
    enough = [size for size in needed if size <= nbytes]
    if not enough:
        sizes = " or ".join(f"{size} ({entry.name})" for size, entry in needed.items())
        raise FormatError(f"{what} takes {sizes} bytes, but there are {nbytes}")
    return needed[max(enough)]
