"""Adding the n-gram embedding to the residual streams (model spec, section 10.3)."""

import torch
from torch import Tensor

from strata.model import weights
from strata.ops.elementwise.reference import sigmoid, silu
from strata.ops.gdn.project import convolve
from strata.ops.linear.stored import linear
from strata.ops.norm.reference import rms_grouped


def mix(
    residual: Tensor, e: Tensor, tail: Tensor, w: weights.Ple, dilation: int, streams: int, eps: float
) -> tuple[Tensor, Tensor]:
    """Gate the embedding by the streams, smooth it along the sequence, add it.

    Args:
        residual: float32 [T, S*H].
        e: float32 [T, rows_per_token*width], each token's table rows side by side.
        tail: float32 [(taps-1)*dilation, S*H], normalised values of the tokens before (zeros at the start).
        w: weights.
        dilation: tokens between two taps; the n-gram length.
        streams: S.
        eps: of the norms.

    Returns:
        The new residual, and the T normalised values that the next call's tail is made of.
    """
    key = rms_grouped(linear(e, w.key), w.norm_key, streams, eps).unflatten(-1, (streams, -1))
    query = rms_grouped(residual, w.norm_query, streams, eps).unflatten(-1, (streams, -1))
    value = linear(e, w.value)
    a = (key * query).sum(-1) / value.shape[-1] ** 0.5  # [T, S]
    a = a.sign() * a.abs().clamp(min=1e-6).sqrt()
    gated = (sigmoid(a)[:, :, None] * value[:, None, :]).flatten(-2)
    normed = rms_grouped(gated, w.norm_conv, streams, eps)
    smooth = silu(convolve(torch.cat((tail, normed)), w.conv, dilation))
    return residual + (gated + smooth), normed
