"""Blocks to compute with whose values are of no interest: random codes, and scales that are small numbers."""

import numpy as np

from strata.formats import by_name
from strata.formats.block import U8

SCALE_AT = {"Q6_K": 208, "Q2_K": 80, "Q3_K": 108, "TQ1_0": 52, "TQ2_0": 64}
"""Where a block's float16 scale lies; at its beginning where nothing is said."""

SECOND_AT = {"Q4_1": 2, "Q5_1": 2, "Q2_K": 82, "Q4_K": 2, "Q5_K": 2}
"""Where a second one lies, of types that have two."""

SOME = 512
"""Blocks that are made; they repeat. Kernels do not look at values."""


def blocks(name: str, rows: int, width: int, seed: int = 0) -> U8:
    """Rows of a matrix.

    Args:
        name: of the block type.
        rows: how many.
        width: weights of a row, a multiple of the type's block.
        seed: of the random codes.

    Returns:
        uint8 [rows, row_bytes].
    """
    kind, rng = by_name(name), np.random.default_rng(seed)
    count = rows * width // kind.weights
    if kind.weights == 1:
        values = rng.standard_normal(SOME).astype(np.float32) * np.float32(0.01)
        if name == "BF16":
            some = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        else:
            some = values.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
        some = some.reshape(SOME, kind.bytes)
    else:
        some = rng.integers(0, 256, (SOME, kind.bytes), dtype=np.uint8)
        for at in (SCALE_AT.get(name, 0), *([SECOND_AT[name]] if name in SECOND_AT else [])):
            some[:, at : at + 2] = np.frombuffer(np.float16(1e-3).tobytes(), np.uint8)
    return np.resize(some, (count, kind.bytes)).reshape(rows, -1)
