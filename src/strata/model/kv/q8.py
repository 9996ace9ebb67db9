"""q8: 36 bytes for 32 numbers along a head: a float32 scale and 32 codes.

The quantiser is that of activations (docs/numerics.md, "Activations"), so the scale keeps float32's range and a head of
tiny or huge numbers loses nothing but digits:

    a = max |x|;  a < 2^-100: all zero, else  scale = fl(a / 127),  code = rint(fl(x * fl(127 / a)))
    reads back as fl(code * scale)
"""

import torch
from torch import Tensor

from strata.errors import RequestError

BLOCK = 32
_SCALE = 4  # bytes


def check_blocks(name: str, width: int) -> None:
    """Refuse heads that are not whole blocks."""
    if width % BLOCK:
        raise RequestError(f"the cache type {name} needs heads of a multiple of {BLOCK} numbers, not {width}; use f16")


class Q8:
    """`strata.model.kv.Codec`."""

    dtype = torch.uint8

    def stored(self, heads: int, width: int) -> tuple[int, ...]:
        """Bytes of each block of each head."""
        check_blocks("q8", width)
        return (heads, width // BLOCK, _SCALE + BLOCK)

    def encode(self, rows: Tensor) -> Tensor:
        """See `Codec.encode`."""
        x = rows.unflatten(-1, (-1, BLOCK))
        largest = x.abs().amax(-1, keepdim=True)
        tiny = largest < 2.0**-100
        scale = (largest / 127).masked_fill(tiny, 0.0)
        codes = torch.round(x * (127 / largest).masked_fill(tiny, 0.0)).nan_to_num(0.0).to(torch.int8)
        return torch.cat((scale.view(torch.uint8), codes.view(torch.uint8)), -1)

    def decode(self, stored: Tensor) -> Tensor:
        """See `Codec.decode`."""
        scale = stored[..., :_SCALE].contiguous().view(torch.float32)
        codes = stored[..., _SCALE:].contiguous().view(torch.int8)
        return (codes.to(torch.float32) * scale).flatten(-2)

    def turn(self, x: Tensor) -> Tensor:
        """Stored as they are."""
        return x
