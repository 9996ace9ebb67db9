"""The scale tensors that stand beside NVFP4 weights."""

import numpy as np

from strata.errors import FormatError
from strata.formats.block import F32


def apply_tensor_scale(weights: F32, scale: F32) -> F32:
    """Multiply dequantised weights by their ``.scale`` tensor.

    An NVFP4 block's own scales span only 2^-10 to 224, so such a file keeps one more float32 for a whole matrix, or
    one per expert: ``blk.N.ffn_gate_exps.scale [E]`` beside ``blk.N.ffn_gate_exps.weight`` (gguf-tensors spec, section
    3). The block reader cannot see it; whoever loads the weight must apply it. By definition it multiplies the result
    of the matrix product; multiplying the weights instead, as here, differs only in rounding, at most half a float32
    unit per weight.

    Args:
        weights: ``float32 [E, rows, width]``, or ``[rows, width]`` for a single matrix.
        scale: ``float32 [E]``, or one number (``[1]`` or ``[]``) for everything.

    Returns:
        ``float32``, the shape of ``weights``.

    Raises:
        FormatError: if there are neither one nor E scales.
    """
    if scale.size == 1:
        return weights * scale.reshape(()).astype(np.float32)
    if scale.ndim == 1 and weights.ndim == 3 and len(scale) == len(weights):
        return weights * scale.astype(np.float32)[:, None, None]
    raise FormatError(
        f"a scale tensor of shape {list(scale.shape)} does not go with weights of shape {list(weights.shape)}: "
        "one number or one per expert is needed"
    )
