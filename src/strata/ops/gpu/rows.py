"""What passes from one GPU operation to the next: rows for a matrix, and residual streams with a write still to do."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from strata.errors import FormatError
from strata.ops.matvec import floats
from strata.ops.matvec.triton import MAX_ROWS, Activations, PlaneMatrix, empty_activations, product


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of activations in both forms a matrix may ask for.

    Attributes:
        x: float32 [T, K].
        quantised: the same in eight bits; None where K is no multiple of 32.
    """

    x: Tensor
    quantised: Activations | None

    @classmethod
    def empty(cls, rows: int, width: int, device: torch.device) -> "Rows":
        """Room for rows."""
        x = torch.empty((rows, width), dtype=torch.float32, device=device)
        return cls(x, empty_activations(rows, width, device))

    @property
    def targets(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Where a kernel leaves them: x, codes, scales, scaled sums."""
        assert self.quantised is not None
        return self.x, self.quantised.q, self.quantised.s, self.quantised.z


class ExpertRows(NamedTuple):
    """The rows of a window's experts, not yet weighed and added; see `hyper_connection.gpu.write`."""

    rows: Tensor  # float32 [at least T * topk, H]
    weights: Tensor  # float32 [T, topk]
    shared: Tensor  # float32 [T, H]
    shared_weights: Tensor  # float32 [T]


@dataclass(slots=True)
class Streams:
    """Residual streams, and what has yet to be added to them: the next read does it on its way.

    Attributes:
        x: float32 [T, S*H].
        out: a block's output, float32 [T, H], or what it is made of; None if nothing is due.
        shares: float32 [T, S, parts], parts of the raw strengths; see `hyper_connection.gpu.low`.
    """

    x: Tensor
    out: Tensor | ExpertRows | None = None
    shares: Tensor | None = None


def linear(rows: Rows, w: Any, out: Tensor | None = None) -> Tensor:
    """``rows @ w.T``: float32 [T, N]. More than eight rows go in groups of eight, which changes no byte."""
    count = len(rows.x)
    if isinstance(w, PlaneMatrix):
        if rows.quantised is None:
            raise FormatError(f"rows of width {rows.x.shape[1]} cannot meet a matrix of {w.type}: no multiple of 32")
        out = torch.empty((count, w.rows), dtype=torch.float32, device=rows.x.device) if out is None else out
        a = rows.quantised
        for first in range(0, count, MAX_ROWS):
            part = slice(first, first + MAX_ROWS)
            product(w, Activations(a.q[part], a.s[part], a.z[part]), out[part])
        return out
    out = torch.empty((count, w.shape[0]), dtype=torch.float32, device=rows.x.device) if out is None else out
    for first in range(0, count, MAX_ROWS):
        part = slice(first, first + MAX_ROWS)
        floats.product(w, rows.x[part], out[part])
    return out
