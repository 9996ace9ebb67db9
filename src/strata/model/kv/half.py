"""f16: every number as a float16, rounded to nearest even. Beyond 65,504 it is infinity, which ends the request."""

import torch
from torch import Tensor


class Half:
    """`strata.model.kv.Codec`."""

    dtype = torch.float16

    def stored(self, heads: int, width: int) -> tuple[int, ...]:
        """As the row itself."""
        return (heads, width)

    def encode(self, rows: Tensor) -> Tensor:
        """See `Codec.encode`."""
        return rows.to(torch.float16)

    def decode(self, stored: Tensor) -> Tensor:
        """See `Codec.decode`."""
        return stored.to(torch.float32)

    def turn(self, x: Tensor) -> Tensor:
        """Stored as they are."""
        return x
