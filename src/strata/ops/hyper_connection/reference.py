"""Hyper-connections: S residual streams read into one input and written back (model spec, section 5)."""

from torch import Tensor

from strata.model.weights import HyperConnection
from strata.ops.elementwise.fixed import sigmoid, silu
from strata.ops.linear.fixed import linear
from strata.ops.norm.reference import rms_grouped


def read(residual: Tensor, w: HyperConnection, streams: int, eps: float) -> tuple[Tensor, Tensor | None]:
    """Mix the streams into the input of a sub-block.

    Args:
        residual: float32 [T, S*H], stream s in columns s*H:(s+1)*H.
        w: the module's weights; without `inject` for a final mixer.
        streams: S.
        eps: of the norm.

    Returns:
        The input [T, H], and the write-back strength of each stream [T, S] or None.
    """
    xn = rms_grouped(residual, w.norm, streams, eps)
    low = silu(linear(xn, w.down) / streams)
    gate = sigmoid(linear(low, w.up))
    mixed = (gate * xn).unflatten(-1, (streams, -1)).mean(-2)
    if w.inject is None:
        return mixed, None
    return mixed, 2 * sigmoid(linear(xn, w.inject) / streams)


def write(residual: Tensor, out: Tensor, inject: Tensor) -> Tensor:
    """Add `out` [T, H] to every stream of `residual` [T, S*H], scaled by `inject` [T, S]."""
    return residual + (inject[:, :, None] * out[:, None, :]).flatten(-2)
