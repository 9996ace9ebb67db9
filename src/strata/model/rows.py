"""A growing table of rows, such as cached keys: written past its end, then committed or forgotten."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from strata.model.kv import Codec


class Rows:
    """Rows of one shape, of which the first `length` count.

    A window writes its rows behind the end; committing only moves the end, and what is not committed is overwritten
    by the next write. Memory doubles when it runs out.

    Attributes:
        length: rows that count.
        codec: how rows of numbers are stored; None stores them as they are.
    """

    def __init__(
        self, shape: tuple[int, ...], dtype: torch.dtype = torch.float32, codec: "Codec | None" = None
    ) -> None:
        """Start empty; shape and type are those of a row as it is stored."""
        self._data = torch.empty((0, *shape), dtype=dtype)
        self.length = 0
        self.codec = codec

    def write(self, rows: Tensor) -> None:
        """Put `rows` [n, *shape], as they are stored, behind the end without counting them."""
        need = self.length + rows.shape[0]
        if need > self._data.shape[0]:
            grown = self._data.new_empty((max(need, 2 * self._data.shape[0], 64), *self._data.shape[1:]))
            grown[: self.length] = self._data[: self.length]
            self._data = grown
        self._data[self.length : need] = rows

    def encode(self, values: Tensor) -> Tensor:
        """Rows of numbers as they are stored."""
        return values if self.codec is None else self.codec.encode(values)

    def decode(self, rows: Tensor) -> Tensor:
        """Stored rows as numbers, in the frame the codec stores them in."""
        return rows if self.codec is None else self.codec.decode(rows)

    def commit(self, count: int) -> None:
        """Count the first `count` of the rows written last."""
        self.length += count

    def truncate(self, length: int) -> None:
        """Forget all rows from `length` on."""
        self.length = min(self.length, length)

    def upto(self, count: int) -> Tensor:
        """The first `count` rows as they are stored; may include rows written but not committed."""
        return self._data[:count]

    def clone(self) -> "Rows":
        """An independent copy of the committed rows."""
        other = Rows(tuple(self._data.shape[1:]), self._data.dtype, self.codec)
        other._data = self._data[: self.length].clone()
        other.length = self.length
        return other
