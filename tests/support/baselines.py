"""Naive quantisers in float64, written from the format's description: what a searched quantiser must not fall behind.

Each takes ``x [n, weights]`` and returns the weights that would be read back. The grids are gguf's own.
"""

import numpy as np

import gguf

IQ4_LEVELS = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float64)


def half(values):
    return np.asarray(values).astype(np.float16).astype(np.float64)


def _safe(d):
    return np.where(d == 0, 1, d)


def absmax_rounding(levels: int, stored_divisor: int):
    """One step for the whole block, max|x| on the last code; codes are -levels..levels-1.

    The step is kept as ``stored_divisor`` times a float16, which is how the format would have to hold it.
    """

    def quantise(x):
        step = np.abs(x).max(axis=1, keepdims=True) / (levels - 1)
        step = half(step / stored_divisor) * stored_divisor
        return np.where(step == 0, 0, np.clip(np.rint(x / _safe(step)), -levels, levels - 1) * step)

    return quantise


def q2_0_reference(x):
    """The spec's reference quantiser: d = max|x| as float16, codes rounded half away from zero."""
    d = half(np.abs(x).max(axis=1, keepdims=True))
    y = x / _safe(d)
    code = np.clip(np.sign(y) * np.floor(np.abs(y) + 0.5) + 1, 0, 3)
    return (code - 1) * d


def iq4_nl_peak(x):
    """The peak on -127, every weight on the nearest level."""
    peak = np.take_along_axis(x, np.abs(x).argmax(axis=1)[:, None], axis=1)
    d = half(peak / -127)
    level = IQ4_LEVELS[np.abs((x / _safe(d))[..., None] - IQ4_LEVELS).argmin(axis=-1)]
    return level * d


def greedy_codewords(grid_name: str, *, even: bool):
    """One scale for the block, the peak on the highest level; nearest codeword by trying all.

    With ``even``, an odd group of eight flips the sign of its smallest magnitude.
    """
    oracle = getattr(gguf.quants, grid_name)
    oracle.init_grid()
    grid = oracle.grid[0, 0].astype(np.float64)

    def quantise(x):
        scale = half(np.abs(x).max(axis=1, keepdims=True) / grid.max())
        groups = (x / _safe(scale)).reshape(len(x), -1, 8)
        sign = np.where(groups < 0, -1.0, 1.0)
        if even:
            odd = (sign < 0).sum(axis=-1) % 2 == 1
            at = np.abs(groups).argmin(axis=-1)
            sign[odd, at[odd]] *= -1
        target = (groups * sign).reshape(len(x), -1, grid.shape[1])
        best = ((target[:, :, None] - grid) ** 2).sum(axis=-1).argmin(axis=-1)
        return (grid[best].reshape(sign.shape) * sign).reshape(x.shape) * scale

    return quantise


# Name: (naive quantiser, largest stored level: a weight is at most that many times the scale field's rounding error)
BASELINES = {
    "Q2_0": (q2_0_reference, 2),
    "Q2_0_128": (q2_0_reference, 2),
    "IQ4_NL": (iq4_nl_peak, 127),
    "Q3_K": (absmax_rounding(4, 32), 0),
    "Q4_K": (absmax_rounding(8, 32), 0),
    "Q5_K": (absmax_rounding(16, 32), 0),
    "Q6_K": (absmax_rounding(32, 128), 0),
    "IQ2_XS": (greedy_codewords("IQ2_XS", even=True), 0),
    "IQ2_S": (greedy_codewords("IQ2_S", even=False), 0),
    "IQ3_XXS": (greedy_codewords("IQ3_XXS", even=True), 0),
    "IQ3_S": (greedy_codewords("IQ3_S", even=False), 0),
}
