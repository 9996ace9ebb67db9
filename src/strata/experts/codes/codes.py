"""A quantised matrix as integers and scales: what the order of operations in docs/numerics.md works on."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Codes:
    """Weights in blocks of 32: ``weight = unit * step * w + minimum``. B is K / 32.

    Attributes:
        w: integer codes, ``int8 [N, B, 32]``.
        unit: float scale, ``float32 [N, B, 1]``; ``[N, B, 2]`` where each half of a block has its own.
        step: integer scale of each half, ``int32 [N, B, 2]``, or None for 1.
        minimum: what is added to every weight of the block, ``float32 [N, B]``, or None for 0.
    """

    w: NDArray[np.int8]
    unit: F32
    step: NDArray[np.int32] | None = None
    minimum: F32 | None = None

    def weights(self) -> F32:
        """The float32 weights, ``[N, 32 B]``: equal to dequantising (but for the sign of a zero in Q6_K)."""
        n, blocks, _ = self.w.shape
        halves = self.w.reshape(n, blocks, 2, 16).astype(np.int32)
        if self.step is not None:
            halves = halves * self.step[..., None]
        weights = (self.unit[..., None] * halves.astype(np.float32)).reshape(n, blocks, 32)
        if self.minimum is not None:
            weights = weights + self.minimum[..., None]
        return weights.reshape(n, 32 * blocks)
