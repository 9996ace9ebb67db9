"""q4: 18 bytes for 32 numbers along a head, after a rotation: a float16 scale and 32 codes of 4 bits.

    y = the head's Hadamard rotation;  a = max |y| of the block
    scale = float16(fl(a / 7));  code = rint(fl(y / scale)) within -7..7, all zero where the scale is
    reads back, still rotated, as code * scale, which is exact

Keys are rotated after their rotary embedding. Code c is stored as c + 8; byte i holds number i in its low four bits and
number i + 16 in its high ones. A scale beyond 65,504 is infinity, and the head reads back as NaN.
"""

import torch
from torch import Tensor

from strata.errors import RequestError
from strata.model.kv.q8 import BLOCK, check_blocks
from strata.model.kv.rotation import rotate

_SCALE = 2  # bytes
_LARGEST = 7


class Q4:
    """`strata.model.kv.Codec`."""

    dtype = torch.uint8

    def stored(self, heads: int, width: int) -> tuple[int, ...]:
        """Bytes of each block of each head."""
        check_blocks("q4", width)
        if width & (width - 1):
            raise RequestError(
                f"the cache type q4 rotates heads, whose width must be a power of two, not {width}; use f16 or q8"
            )
        return (heads, width // BLOCK, _SCALE + BLOCK // 2)

    def encode(self, rows: Tensor) -> Tensor:
        """See `Codec.encode`."""
        y = rotate(rows).unflatten(-1, (-1, BLOCK))
        scale = (y.abs().amax(-1, keepdim=True) / _LARGEST).to(torch.float16)
        codes = torch.round(y / scale.to(torch.float32)).masked_fill(scale == 0, 0.0).nan_to_num(0.0)
        biased = (codes.clamp(-_LARGEST, _LARGEST) + 8).to(torch.uint8)
        low, high = biased.split(BLOCK // 2, -1)
        return torch.cat((scale.view(torch.uint8), low | (high << 4)), -1)

    def decode(self, stored: Tensor) -> Tensor:
        """See `Codec.decode`."""
        scale = stored[..., :_SCALE].contiguous().view(torch.float16).to(torch.float32)
        packed = stored[..., _SCALE:]
        codes = torch.cat((packed & 15, packed >> 4), -1).to(torch.float32) - 8
        return (codes * scale).flatten(-2)

    def turn(self, x: Tensor) -> Tensor:
        """The rotation."""
        return rotate(x)
