"""The quantised product's reference is the judge, `strata.experts.judge`; here it takes and gives torch tensors.

Every kernel has to give the judge's bytes (docs/numerics.md), whatever its tile, for 1 to 8 rows.
"""

import torch
from torch import Tensor

from strata.experts import judge
from strata.formats import by_name


def product(block_type: str, raw: Tensor, x: Tensor) -> Tensor:
    """Quantise activations and multiply.

    Args:
        block_type: name.
        raw: GGUF blocks, ``uint8 [N, row bytes]``.
        x: ``float32 [T, K]``.

    Returns:
        ``float32 [T, N]``.
    """
    q, s = judge.quantise_rows(x.numpy())
    return torch.from_numpy(judge.product(by_name(block_type), raw.numpy(), q, s))


def float_product(w: Tensor, x: Tensor) -> Tensor:
    """``[N, K]`` of F32, BF16 or F16 times ``float32 [T, K]``, in float64, rounded once: ``float32 [T, N]``."""
    return (x.double() @ w.double().T).float()
