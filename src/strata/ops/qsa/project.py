"""Sparse attention: projections of a row, and the keys of the indexer's blocks (model spec, sections 7.1, 7.2)."""

from torch import Tensor

from strata.model import config, weights
from strata.model.ops import Angles, QsaInputs
from strata.ops.linear.stored import linear
from strata.ops.norm.reference import rms
from strata.ops.rope.reference import rotate


def project(m: Tensor, angles: Angles, w: weights.Qsa, c: config.Qsa, eps: float) -> QsaInputs:
    """Project `m` [T, H]; `angles` are those of the rows' positions."""
    q, gate = linear(m, w.q).unflatten(-1, (c.nh, 2 * c.hd)).split(c.hd, -1)
    k = linear(m, w.k).unflatten(-1, (c.nkv, c.hd))
    iq = linear(m, w.iq).unflatten(-1, (c.ih, c.id))
    return QsaInputs(
        q=rotate(rms(q, w.q_norm, eps), *angles),
        gate=gate,
        k=rotate(rms(k, w.k_norm, eps), *angles),
        v=linear(m, w.v).unflatten(-1, (c.nkv, c.hd)),
        iq=rotate(rms(iq, w.iq_norm, eps), *angles),
        ik=linear(m, w.ik),
    )


def block_keys(ik: Tensor, angles: Angles, w: weights.Qsa, ratio: int, eps: float) -> Tensor:
    """Pool complete blocks of raw indexer keys: mean, then norm, then rotation.

    Args:
        ik: float32 [n*ratio, id], raw keys of n complete blocks.
        angles: of the first token of each block.
        w: the layer's weights.
        ratio: tokens per block.
        eps: of the norm.

    Returns:
        float32 [n, id].
    """
    pooled = ik.unflatten(0, (-1, ratio)).mean(1)
    return rotate(rms(pooled, w.ik_norm, eps)[:, None, :], *angles)[:, 0]
