"""Quantised matrices as integers and scales, one reader per block type, in NumPy."""

from collections.abc import Callable

import numpy as np

from strata.errors import FormatError
from strata.experts.codes import grids, halves, minimum, whole
from strata.experts.codes.codes import Codes
from strata.formats import BlockType
from strata.formats.block import U8

__all__ = ["READERS", "Codes", "read"]

READERS: dict[str, Callable[[U8], Codes]] = {
    "Q8_0": whole.q8_0,
    "Q2_0": whole.q2_0,
    "Q2_0_128": whole.q2_0,
    "IQ4_NL": whole.iq4_nl,
    "IQ4_XS": whole.iq4_xs,
    "MXFP4": whole.mxfp4,
    "Q4_1": minimum.q4_1,
    "Q5_1": minimum.q5_1,
    "Q4_K": minimum.q4_k,
    "Q5_K": minimum.q5_k,
    "Q6_K": halves.q6_k,
    "NVFP4": halves.nvfp4,
    "IQ3_XXS": grids.iq3_xxs,
    "IQ3_S": grids.iq3_s,
    "IQ2_XS": grids.iq2_xs,
    "IQ2_S": grids.iq2_s,
    "IQ1_M": grids.iq1_m,
}


def read(block_type: BlockType, raw: U8) -> Codes:
    """Integers and scales of a matrix.

    Args:
        block_type: the layout of the bytes.
        raw: ``uint8 [N, row_bytes]``.

    Raises:
        FormatError: for a type without an order of operations, or rows that are not whole blocks.
    """
    reader = READERS.get(block_type.name)
    if reader is None:
        raise FormatError(
            f"no quantised product is defined for {block_type.name}; there is one for {', '.join(READERS)}. "
            "Dequantise the matrix instead"
        )
    if raw.dtype != np.uint8 or raw.ndim != 2 or raw.shape[1] % block_type.bytes or not raw.size:
        raise FormatError(
            f"a {block_type.name} matrix is uint8 [N, a multiple of {block_type.bytes}], "
            f"not {raw.dtype} {list(raw.shape)}"
        )
    n = len(raw)
    codes = reader(np.ascontiguousarray(raw).reshape(-1, block_type.bytes))
    return Codes(
        codes.w.reshape(n, -1, 32),
        codes.unit.reshape(n, -1, codes.unit.shape[-1]),
        None if codes.step is None else codes.step.reshape(n, -1, 2),
        None if codes.minimum is None else codes.minimum.reshape(n, -1),
    )
