"""Gated delta network: everything around the recurrence (model spec, sections 6 and 6.3)."""

import torch
from torch import Tensor

from strata.model import config, weights
from strata.model.ops import GdnInputs, GdnProjected
from strata.ops.elementwise.fixed import sigmoid, silu, softplus
from strata.ops.linear.fixed import linear
from strata.ops.norm.reference import rms

NORM_EPS = 1e-6
"""Inside the root of the q/k normalisation; a constant of the architecture, not the config's eps."""


def project(m: Tensor, w: weights.Gdn, c: config.Gdn) -> GdnProjected:
    """Project `m` [T, H]."""
    return GdnProjected(
        u=linear(m, w.qkv),
        beta=sigmoid(linear(m, w.beta)),
        g=w.a * softplus(linear(m, w.alpha) + w.dt),
        z=linear(m, w.z).unflatten(-1, (c.nv, c.d)),
    )


def mix(x: GdnProjected, tail: Tensor, w: weights.Gdn, c: config.Gdn) -> GdnInputs:
    """Convolve and normalise the rows of one conversation.

    Args:
        x: projections of T rows.
        tail: float32 [taps-1, channels], the rows of u before the first token (zeros at the start).
        w: the layer's weights.
        c: dimensions.
    """
    mixed = silu(convolve(torch.cat((tail, x.u)), w.conv))
    q, k, v = mixed.split((c.nk * c.d, c.nk * c.d, c.nv * c.d), -1)
    return GdnInputs(
        u=x.u,
        q=unit(q.unflatten(-1, (c.nk, c.d))) * c.d**-0.5,
        k=unit(k.unflatten(-1, (c.nk, c.d))),
        v=v.unflatten(-1, (c.nv, c.d)),
        beta=x.beta,
        g=x.g,
    )


def convolve(rows: Tensor, taps: Tensor, dilation: int = 1) -> Tensor:
    """Causal depthwise convolution.

    Args:
        rows: float32 [(n-1)*dilation + T, C]: history first, then the T new rows.
        taps: float32 [C, n]; the last tap multiplies the current row.
        dilation: distance between taps, in rows.

    Returns:
        float32 [T, C].
    """
    n = taps.shape[1]
    count = rows.shape[0] - (n - 1) * dilation
    total = taps[:, 0] * rows[:count]
    for j in range(1, n):
        total = total + taps[:, j] * rows[j * dilation : j * dilation + count]
    return total


def unit(x: Tensor) -> Tensor:
    """Divide each head by its length: a sum of squares, not a mean, and the epsilon inside the root."""
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) + NORM_EPS)


def output(o: Tensor, z: Tensor, w: weights.Gdn, eps: float) -> Tensor:
    """Normalise each value head of `o` [T, nv, d], gate it by `z`, project to [T, H]."""
    return linear((rms(o, w.norm, eps) * sigmoid(z)).flatten(-2), w.out)
