"""Adding the n-gram embedding to the residual streams (model spec, section 10.3)."""

import torch
from torch import Tensor

from strata.model import weights
from strata.model.ops import NgramGated
from strata.ops.elementwise.fixed import sigmoid, silu
from strata.ops.gdn.project import convolve
from strata.ops.linear.fixed import linear
from strata.ops.norm.reference import rms_grouped


def gate(residual: Tensor, e: Tensor, w: weights.Ple, streams: int, eps: float) -> NgramGated:
    """Gate the embeddings by the streams.

    Args:
        residual: float32 [T, S*H].
        e: float32 [T, rows_per_token*width], each token's table rows side by side.
        w: weights.
        streams: S.
        eps: of the norms.
    """
    key = rms_grouped(linear(e, w.key), w.norm_key, streams, eps).unflatten(-1, (streams, -1))
    query = rms_grouped(residual, w.norm_query, streams, eps).unflatten(-1, (streams, -1))
    value = linear(e, w.value)
    a = (key * query).sum(-1) / value.shape[-1] ** 0.5  # [T, S]
    a = a.sign() * a.abs().clamp(min=1e-6).sqrt()
    gated = (sigmoid(a)[:, :, None] * value[:, None, :]).flatten(-2)
    return NgramGated(gated, rms_grouped(gated, w.norm_conv, streams, eps))


def smooth(residual: Tensor, x: NgramGated, tail: Tensor, w: weights.Ple, dilation: int) -> Tensor:
    """Smooth the embeddings along one conversation and add them.

    Args:
        residual: float32 [T, S*H].
        x: the gated embeddings of these rows.
        tail: float32 [(taps-1)*dilation, S*H], normalised values of the tokens before (zeros at the start).
        w: weights.
        dilation: tokens between two taps; the n-gram length.

    Returns:
        The new residual.
    """
    along = silu(convolve(torch.cat((tail, x.normed)), w.conv, dilation))
    return residual + (x.gated + along)
