"""Q3_K and Q6_K: 256 weights in 16 groups of 16, each group with a signed scale and no minimum."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from strata.formats.block import F32, U8
from strata.formats.fields import as_half, half, half_bytes, pack_planes, planes
from strata.formats.scales import dot, fit_scale, inverse, nearest_blocks, peak, ratio


def dequantise_q3_k(blocks: U8) -> F32:
    """Top code bits 32, low code bits 64, 6-bit scales 12, d; ``d * (scale - 32) * (code - 4)``."""
    low = planes(blocks[:, 32:96].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    high = planes(blocks[:, :32], 1).reshape(-1, 16, 16)
    codes = (low | (high << np.uint8(2))).astype(np.float32) - 4
    low_scale = planes(blocks[:, 96:104], 4).reshape(-1, 16)
    high_scale = planes(blocks[:, 104:108], 2).reshape(-1, 16)
    scale = half(blocks, 108) * ((low_scale | (high_scale << np.uint8(4))).astype(np.float32) - 32)
    return (scale[..., None] * codes).reshape(-1, 256)


def dequantise_q6_k(blocks: U8) -> F32:
    """Low nibbles 128, top code bits 64, int8 scales 16, d; ``d * scale * (code - 32)``."""
    low = planes(blocks[:, :128].reshape(-1, 2, 64), 4).reshape(-1, 16, 16)
    high = planes(blocks[:, 128:192].reshape(-1, 2, 32), 2).reshape(-1, 16, 16)
    codes = (low | (high << np.uint8(4))).astype(np.float32) - 32
    scale = half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)
    return (scale[..., None] * codes).reshape(-1, 256)


@dataclass(frozen=True, slots=True)
class _Fit:
    d: F32  # [n, 1]
    scales: U8  # [n, 16], offset so that the lowest is 0
    codes: U8  # [n, 16, 16], offset likewise


@dataclass(frozen=True, slots=True)
class _Quantiser:
    """Codes run from -code to code - 1, group scales from -scale to scale - 1."""

    code: int
    scale: int
    factors: Sequence[float]

    def nearest(self, x: F32) -> F32:
        return np.clip(np.rint(x), -self.code, self.code - 1)

    def encode(self, groups: F32, d: F32, scales: F32) -> _Fit:
        codes = self.nearest(groups * inverse(d * scales)[..., None])
        return _Fit(d, (scales + self.scale).astype(np.uint8), (codes + self.code).astype(np.uint8))

    def fitted(self, groups: F32) -> _Fit:
        """Search each group's scale; round them; then one least-squares refit of d for all 16."""
        wanted = fit_scale(groups, self.factors, self.nearest)[..., 0]
        d = as_half(peak(wanted) / np.float32(-self.scale))
        scales = np.clip(np.rint(wanted * inverse(d)), -self.scale, self.scale - 1)
        codes = self.nearest(groups * inverse(d * scales)[..., None])
        u = (scales[..., None] * codes).reshape(len(groups), -1)
        x = groups.reshape(len(groups), -1)
        return self.encode(groups, as_half(ratio(dot(x, u), dot(u, u))), scales)

    def flat(self, groups: F32) -> _Fit:
        """One step for the whole block, max|x| / (code - 1): the fallback when rounding the scales costs more."""
        step = np.abs(groups).max(axis=(1, 2))[:, None] / np.float32(self.code - 1)
        scales = np.full((len(groups), 16), -self.scale, dtype=np.float32)
        return self.encode(groups, as_half(step / np.float32(-self.scale)), scales)


# Codes per largest magnitude. Beyond the last code, one weight of 16 is cut to give the other 15 a finer step; below
# it, codes go unused, but among many scales some happen to suit all 16 weights. Finer or longer lists gain less than
# 1%.
_Q3 = _Quantiser(4, 32, [sign * (2.5 + 0.25 * step) for step in range(11) for sign in (-1, 1)])
_Q6 = _Quantiser(32, 128, [sign * (24.0 + 0.5 * step) for step in range(19) for sign in (-1, 1)])


def _pack_q3_k(fit: _Fit) -> U8:
    low = pack_planes((fit.codes & np.uint8(3)).reshape(-1, 2, 4, 32), 2).reshape(-1, 64)
    high = pack_planes((fit.codes >> np.uint8(2)).reshape(-1, 8, 32), 1)
    low_scale = pack_planes((fit.scales & np.uint8(15)).reshape(-1, 2, 8), 4)
    high_scale = pack_planes((fit.scales >> np.uint8(4)).reshape(-1, 4, 4), 2)
    return np.concatenate([high, low, low_scale, high_scale, half_bytes(fit.d)], axis=1)


def _pack_q6_k(fit: _Fit) -> U8:
    low = pack_planes((fit.codes & np.uint8(15)).reshape(-1, 2, 2, 64), 4).reshape(-1, 128)
    high = pack_planes((fit.codes >> np.uint8(4)).reshape(-1, 2, 4, 32), 2).reshape(-1, 64)
    scales = fit.scales ^ np.uint8(128)  # offset binary to two's complement
    return np.concatenate([low, high, scales, half_bytes(fit.d)], axis=1)


def quantise_q3_k(x: F32) -> U8:
    """Group scales by search and least squares; see `_Quantiser`."""
    groups = x.reshape(-1, 16, 16)
    return nearest_blocks(x, [_pack_q3_k(_Q3.fitted(groups)), _pack_q3_k(_Q3.flat(groups))], dequantise_q3_k)


def quantise_q6_k(x: F32) -> U8:
    """Group scales by search and least squares; see `_Quantiser`."""
    groups = x.reshape(-1, 16, 16)
    return nearest_blocks(x, [_pack_q6_k(_Q6.fitted(groups)), _pack_q6_k(_Q6.flat(groups))], dequantise_q6_k)
