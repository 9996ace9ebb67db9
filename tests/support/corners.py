"""Matrices and activations that reach every corner of the quantised products."""

import numpy as np

from strata.formats import by_name
from support.blocks import HALF_SCALED, random_blocks, set_scales

# Largest and smallest float16 numbers, subnormal ones, zeros of both signs, and ordinary scales.
_SCALES = np.array([65504.0, -65504.0, 2.0**-24, -(2.0**-24), 2.0**-14, 0.0, -0.0, 0.3, -0.3, 1e-4, -1e-4])


def _wild(name: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Blocks random throughout, but for scales that are not finite or would make results overflow."""
    kind = by_name(name)
    raw = rng.integers(0, 256, (shape[0] * shape[1] // kind.weights, kind.bytes), dtype=np.uint8)
    if name in HALF_SCALED:
        set_scales(name, raw, rng.choice(_SCALES, len(raw)), rng.choice(_SCALES, len(raw)))
    elif name == "MXFP4":
        raw[:, 0] = rng.integers(0, 200, len(raw))
        raw[::7, 0] = rng.integers(0, 3, len(raw[::7]))
    return raw.reshape(shape[0], -1)


def matrix(name: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Half of the rows ordinary, half wild: ``uint8 [N, row bytes]``."""
    half = shape[0] // 2
    return np.concatenate([random_blocks(name, (shape[0] - half, shape[1]), rng), _wild(name, (half, shape[1]), rng)])


def activations(width: int, rng: np.random.Generator) -> np.ndarray:
    """Eight rows: one ordinary, the others each difficult in its own way. ``float32 [8, width]``."""
    normal = rng.standard_normal((8, width))
    x = normal.copy()
    x[1] = np.where(rng.random(width) < 0.5, 0.0, -0.0)
    x[2, rng.integers(width)] = 1e5
    x[3] = normal[3] * 1e-40
    x[4] = normal[4] * 10.0 ** rng.uniform(-8, 5, width)
    x[5] = normal[5] * 1e-8
    x[6] = 0
    x[6, rng.integers(width)] = -3.0
    x[7] = normal[7] * np.repeat(rng.choice([1e-32, 1e4, 2.0**-100], width // 32), 32)
    return x.astype(np.float32)
