"""What stored keys and values say, read byte by byte in float64; shares nothing with `strata.model.kv`."""

import numpy as np
import torch

U = 2.0**-24
"""Half a unit in the last place of a float32."""


def hadamard(width: int) -> np.ndarray:
    """Entries -1 and 1, by the recursion."""
    h = np.ones((1, 1))
    while len(h) < width:
        h = np.block([[h, h], [h, -h]])
    return h


def slow_decode(name: str, stored: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Float64 values of stored bytes as the documents say, in their frame, and a bound on what float32 may add."""
    raw = stored.numpy()
    if name in {"f32", "f16"}:
        return raw.astype(np.float64), np.zeros(raw.shape)
    if name == "q8":
        scale = np.ascontiguousarray(raw[..., :4]).view("<f4").astype(np.float64)
        values = np.ascontiguousarray(raw[..., 4:]).view(np.int8) * scale
        values = values.reshape(*raw.shape[:-2], -1)
        return values, np.abs(values) * U  # the product
    scale = np.ascontiguousarray(raw[..., :2]).view("<f2").astype(np.float64)
    codes = np.concatenate((raw[..., 2:] & 15, raw[..., 2:] >> 4), -1).astype(np.int64) - 8
    values = (codes * scale).reshape(*raw.shape[:-2], -1)
    return values, np.zeros(values.shape)  # 4 bits times 11


def slow_turn(name: str, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Into or out of the frame of what is stored, in float64; and a bound on what float32 may add, [..., 1]."""
    if name != "q4":
        return x, np.zeros((*x.shape[:-1], 1))
    width = x.shape[-1]
    # One rounding in each stage, of sums of at most sum |x|; one of the width's root, one of the product with it.
    bound = (np.log2(width) + 2) * U * np.abs(x).sum(-1, keepdims=True) / np.sqrt(width)
    return x @ hadamard(width) / np.sqrt(width), bound
