"""Where each of 256 weights lies in the registers of a decoded group.

A decoder leaves eight blocks of 32 weights in four registers of 64 bytes. Seen as 16 lanes of four bytes, lanes 2b and
2b + 1 of every register belong to block b, so that four dot-product steps, register by register, leave 16 sums of which
neighbours belong together. Within that rule a decoder takes whatever order its layout gives at least cost. Integer sums
have no order, so the choice cannot be seen in the result; the activations are put in the same order once per row.

An order is ``uint8 [4, 16, 4]``: the weight's number in the group, by register, lane and byte.
"""

import numpy as np
from numpy.typing import NDArray

Order = NDArray[np.uint8]

_REGISTER, _LANE, _BYTE = np.ogrid[0:4, 0:16, 0:4]
_BLOCK, _SUB = _LANE // 2, _LANE % 2


def _order(number: NDArray[np.signedinteger]) -> Order:
    order = number.astype(np.uint8)
    order.flags.writeable = False
    return order


# Lane = half a block. A register's bytes are consecutive weights.
WORDS = _order(16 * _LANE + 4 * _REGISTER + _BYTE)

# Lane = half a block. A byte of packed codes, or a codeword of four, is spread over the four registers.
PLANES = _order(16 * _LANE + 4 * _BYTE + _REGISTER)

# A register holds eight consecutive weights of each block.
QUADS = _order(32 * _BLOCK + 8 * _REGISTER + 4 * _SUB + _BYTE)

# Sixteen bytes of nibbles, low ones first: registers 0 and 2 are low nibbles, 1 and 3 the high ones of the same bytes.
NIBBLES = _order(32 * _BLOCK + 16 * (_REGISTER % 2) + 4 * (2 * _SUB + _REGISTER // 2) + _BYTE)

# The same for eight bytes of nibbles per half block.
HALF_NIBBLES = _order(16 * _LANE + 8 * (_REGISTER % 2) + 4 * (_REGISTER // 2) + _BYTE)
