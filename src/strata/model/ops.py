"""What the forward pass asks of a device: some twenty calls, each one fused kernel where there is a GPU.

`strata.ops.bind` returns an implementation. The plain torch one has its formulas in `ops/<operation>/`.
Shapes: T rows, other letters as in docs/dimensions.md. Everything is float32.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from strata.model import weights

WINDOW_ROWS = 8
"""Most rows of a window. Every operation gives a row the bytes it has alone, in passes of any size; only a device whose
`gdn_chunk` is not its `gdn_step` rounds prompts differently (docs/numerics.md)."""


class Angles(NamedTuple):
    """Cosines and sines of rotary positions."""

    cos: Tensor  # [T, dims/2]
    sin: Tensor  # [T, dims/2]

    def part(self, rows: slice) -> "Angles":
        """The angles of some rows."""
        return Angles(self.cos[rows], self.sin[rows])


class GdnProjected(NamedTuple):
    """A recurrent layer's matrices applied to rows: what needs no memory of the rows before."""

    u: Tensor  # [T, channels], before the convolution
    beta: Tensor  # [T, nv], in (0, 1)
    g: Tensor  # [T, nv], log of the decay, never positive
    z: Tensor  # [T, nv, d], output gate

    def part(self, rows: slice) -> "GdnProjected":
        """Those of some rows."""
        return GdnProjected(*(x[rows] for x in self))


class GdnInputs(NamedTuple):
    """What the delta rule takes, and what the state keeps of it."""

    u: Tensor  # [T, channels], before the convolution; its last rows are the next tail
    q: Tensor  # [T, nk, d], normalised and scaled
    k: Tensor  # [T, nk, d], normalised
    v: Tensor  # [T, nv, d]
    beta: Tensor  # [T, nv], in (0, 1)
    g: Tensor  # [T, nv], log of the decay, never positive

    def first(self, n: int) -> "GdnInputs":
        """The inputs of the first n rows."""
        return GdnInputs(*(x[:n] for x in self))


class QsaInputs(NamedTuple):
    """One attention layer's projections."""

    q: Tensor  # [T, nh, hd], normalised and rotated
    gate: Tensor  # [T, nh, hd]
    k: Tensor  # [T, nkv, hd], normalised and rotated
    v: Tensor  # [T, nkv, hd]
    iq: Tensor  # [T, ih, id], normalised and rotated
    ik: Tensor  # [T, id], raw: blocks are pooled before norm and rotation

    def part(self, rows: slice) -> "QsaInputs":
        """Those of some rows."""
        return QsaInputs(*(x[rows] for x in self))


class NgramGated(NamedTuple):
    """An n-gram embedding between its gate and its convolution."""

    gated: Tensor  # [T, S*H]
    normed: Tensor  # [T, S*H]; its last rows are the next tail

    def part(self, rows: slice) -> "NgramGated":
        """Those of some rows."""
        return NgramGated(*(x[rows] for x in self))


class Route(NamedTuple):
    """Experts of each row in the router's order: descending weight, equal weights by lower index."""

    experts: Tensor  # int64 [T, topk]
    weights: Tensor  # float32 [T, topk], each row sums to one


class Ops(Protocol):
    """The operations of one device, for one model's dimensions.

    The T rows of a call may belong to several conversations, except where it takes something of one conversation's
    state: `gdn_convolve`, `gdn_step`, `gdn_chunk`, `gdn_advance`, `qsa_block_keys`, `qsa_attend`, `ngram_numbers` and
    `ngram_smooth`.
    """

    def linear(self, x: Tensor, w: Tensor) -> Tensor:
        """`x @ w.T`: [T, K] and [N, K] to [T, N]."""
        ...

    def rms(self, x: Tensor, w: Tensor, groups: int = 1) -> Tensor:
        """RMS norm of [T, D], each of `groups` parts on its own."""
        ...

    def hc_read(self, residual: Tensor, w: weights.HyperConnection) -> tuple[Tensor, Tensor | None]:
        """Streams [T, S*H] to a block's input [T, H] and write-back strengths [T, S]."""
        ...

    def hc_write(self, residual: Tensor, out: Tensor, inject: Tensor) -> Tensor:
        """Add a block's output [T, H] to the streams."""
        ...

    def angles(self, positions: Tensor) -> Angles:
        """Rotary angles of int64 positions [T, 3]."""
        ...

    def gdn_project(self, m: Tensor, w: weights.Gdn) -> GdnProjected:
        """Projections of [T, H]."""
        ...

    def gdn_convolve(self, x: GdnProjected, tail: Tensor, w: weights.Gdn) -> GdnInputs:
        """Short convolution behind `tail` [taps-1, channels], and normalisation."""
        ...

    def gdn_step(self, x: GdnInputs, s: Tensor) -> tuple[Tensor, Tensor]:
        """The delta rule row by row: outputs [T, nv, d] and the state after the last row."""
        ...

    def gdn_chunk(self, x: GdnInputs, s: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """As `gdn_step` in chunks at fixed absolute positions; the first row is token `start`."""
        ...

    def gdn_advance(self, x: GdnInputs, s: Tensor) -> Tensor:
        """The state `gdn_step` leaves, without outputs: a commit."""
        ...

    def gdn_output(self, o: Tensor, z: Tensor, w: weights.Gdn) -> Tensor:
        """Norm, gate and output projection: [T, H]."""
        ...

    def qsa_project(self, m: Tensor, angles: Angles, w: weights.Qsa) -> QsaInputs:
        """Projections, norms and rotation."""
        ...

    def qsa_block_keys(self, ik: Tensor, angles: Angles, w: weights.Qsa) -> Tensor:
        """Raw indexer keys [n*ratio, id] of complete blocks to block keys [n, id]."""
        ...

    def qsa_attend(self, x: QsaInputs, k: Tensor, v: Tensor, block_keys: Tensor, *, sparse: bool) -> Tensor:
        """Attention of the last T of n tokens over what the indexer selects (all, unless sparse): [T, nh, hd].

        `k` and `v` are [n, nkv, hd] and include the T rows themselves.
        """
        ...

    def qsa_output(self, o: Tensor, gate: Tensor, w: weights.Qsa) -> Tensor:
        """Gate and output projection: [T, H]."""
        ...

    def route(self, m: Tensor, w: weights.Moe) -> Route:
        """Choose each row's experts."""
        ...

    def experts(self, m: Tensor, route: Route, w: weights.Moe) -> Tensor:
        """Weighted sum of the chosen experts, in the router's order: [T, H]."""
        ...

    def shared_expert(self, m: Tensor, w: weights.Moe) -> Tensor:
        """The expert every row visits: [T, H]."""
        ...

    def ngram_numbers(self, history: tuple[int, ...], ids: Sequence[int]) -> NDArray[np.int64]:
        """Hash T ids behind a history: numbers of table rows, [T, rows_per_token]."""
        ...

    def ngram_rows(self, numbers: NDArray[np.int64], w: weights.Ple) -> Tensor:
        """Read table rows: [T, rows_per_token*width].

        Raises:
            StrataError: a number is outside the table.
        """
        ...

    def ngram_gate(self, residual: Tensor, e: Tensor, w: weights.Ple) -> NgramGated:
        """Project the embeddings and gate them by the streams."""
        ...

    def ngram_smooth(self, residual: Tensor, x: NgramGated, tail: Tensor, w: weights.Ple) -> Tensor:
        """Add the embeddings, smoothed along the sequence behind `tail` [(taps-1)*n, S*H], to the streams."""
        ...
