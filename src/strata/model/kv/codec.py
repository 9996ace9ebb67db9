"""What a type of the cache has to say, and which types there are."""

from typing import Protocol

import torch
from torch import Tensor

from strata.errors import RequestError
from strata.model.kv.half import Half
from strata.model.kv.q4 import Q4
from strata.model.kv.q8 import Q8

TYPES = ("f32", "f16", "q8", "q4")

DEVICE_TYPES = {"bf16": 2}
"""Bytes a number of types that only other devices keep."""


class Codec(Protocol):
    """Encodes rows of heads. Rows that hold NaN or infinity, or overflow the type, read back as NaN or infinity."""

    @property
    def dtype(self) -> torch.dtype:
        """Of what is stored."""
        ...

    def stored(self, heads: int, width: int) -> tuple[int, ...]:
        """Shape that one row [heads, width] is stored in.

        Raises:
            RequestError: the type cannot hold heads of such a width.
        """
        ...

    def encode(self, rows: Tensor) -> Tensor:
        """float32 [n, heads, width] to [n, *stored]."""
        ...

    def decode(self, stored: Tensor) -> Tensor:
        """[n, *stored] to float32 [n, heads, width], turned; the same bytes for a row whatever the others are."""
        ...

    def turn(self, x: Tensor) -> Tensor:
        """Into the frame that heads are stored in, and back again: its own inverse, float32 [..., width].

        Turned queries have with turned keys the products of queries and keys, so nothing but the query and the sum of
        the values has to be turned.
        """
        ...


_CODECS: dict[str, Codec | None] = {"f32": None, "f16": Half(), "q8": Q8(), "q4": Q4()}


def codec(name: str) -> Codec | None:
    """The codec of a type; None for float32, which is stored as it is.

    Raises:
        RequestError: there is no such type.
    """
    if name not in TYPES:
        raise RequestError(
            f"keys and values are kept as {', '.join(TYPES[:-1])} or {TYPES[-1]}, not {name!r}; the indexer's keys are "
            "always float32, because rounded ones select other tokens"
        )
    return _CODECS[name]
