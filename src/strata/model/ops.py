"""What the forward pass asks of a device: some twenty calls, each one fused kernel where there is a GPU.

`strata.ops.bind` returns an implementation. The plain torch one has its formulas in `ops/<operation>/`.
Shapes: T rows, other letters as in docs/dimensions.md. Everything is float32 on the CPU. A device may keep what passes
from one call to the next in a form of its own: the forward pass never looks inside.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias

from torch import Tensor

from strata.model import weights
from strata.model.candidates import Candidates, Wish
from strata.model.decision import Decision, Drawn, Greedy, Undecided
from strata.model.state import GdnState, QsaState, State
from strata.model.tally import Tally

WINDOW_ROWS = 8
"""Most rows of a window. Every operation gives a row the bytes it has alone, in passes of any size; only a device that
reads prompts in chunks rounds them differently from windows (docs/numerics.md)."""


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


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows of one conversation in a pass."""

    memory: "Memory"
    ids: tuple[int, ...]
    positions: Tensor  # int64 [T, 3]
    rows: slice  # where they lie among the rows of the pass


class Memory(Protocol):
    """What rows look back on: a conversation's state, or its draft head's."""

    @property
    def layers(self) -> tuple[GdnState | QsaState, ...]:
        """By layer."""
        ...

    @property
    def positions(self) -> Any:
        """`Rows` of int64 [3]."""
        ...


class Pass(Protocol):
    """What T rows of one conversation computed, and what committing some of them needs."""

    @property
    def ids(self) -> tuple[int, ...]:
        """The tokens fed."""
        ...

    @property
    def residual(self) -> Tensor:
        """[T, S*H], before the final mixer: what the head and the draft head take."""
        ...

    @property
    def logits(self) -> Tensor | None:
        """[T, V], where they came along with the pass."""
        ...

    @property
    def layers(self) -> Sequence[int]:
        """When each layer of the pass began and the last one ended, by `time.perf_counter_ns`; empty if unknown."""
        ...


Batch: TypeAlias = Any
"""The rows of a pass as a device prepared them: `Ops.begin` makes it."""

Streams: TypeAlias = Any
"""The residual streams of a pass, [T, S*H]."""

Activations: TypeAlias = Any
"""Rows a matrix is applied to, [T, K]."""


class Ops(Protocol):
    """The operations of one device, for one model's dimensions.

    The T rows of a pass may belong to several conversations. What needs a conversation's own past takes the batch and
    the number of the layer.

    Attributes:
        pass_rows: most rows of a prompt pass.
    """

    @property
    def pass_rows(self) -> int:
        """Most rows of a prompt pass."""
        ...

    @property
    def pictures(self) -> bool:
        """Whether the three coordinates of a position may differ, as those of a picture's tokens do."""
        ...

    @property
    def form(self) -> str:
        """A name that differs where a stored state would be of no use: other hardware, or another order of sums."""
        ...

    @property
    def same_forms(self) -> bool:
        """Whether a token gets the same bytes as part of a prompt and in a window."""
        ...

    def new_state(self, *, drafts: bool) -> Any:
        """The state of a conversation that has not begun; with `drafts` it also feeds the draft head."""
        ...

    def fits(self, needs: Sequence[tuple[Any, int]]) -> bool:
        """Whether there is memory for conversations, or ones to come (None), to hold so many tokens each at once."""
        ...

    def ready(self, rows: int) -> int:
        """Have memory for a prompt pass of so many rows, if need be of fewer; called before each.

        Returns:
            Rows of the longest pass that there is memory for now: as many as asked for, or 64 and more.
        """
        ...

    def shorten(self, rows: int, why: str) -> bool:
        """A prompt pass of so many rows was given up, for the device had no memory; nothing of it was committed.

        Returns:
            Whether shorter ones may do; then `ready` says how long they are.
        """
        ...

    def over(self, batch: Batch) -> "Ops":
        """The operations that compute a batch: a device may read prompts by other kernels than it computes windows by.

        What follows in this list up to `passes` belongs to them.
        """
        ...

    def begin(self, segments: Sequence[Segment], *, window: bool) -> Batch:
        """Prepare a pass; positions are written behind the committed ones.

        A window runs the delta rule row by row; a prompt pass may run it in chunks at fixed absolute positions.
        """
        ...

    def layer(self, batch: Batch, number: int) -> None:
        """Layer `number` begins; behind the last one that many layers have ended. Nothing is computed.

        A device whose clock is the host's notes the time. One that is only told what to compute cannot.
        """
        ...

    def replay(self, batch: Batch, body: Callable[[], Streams], head: Callable[[Streams], Tensor]) -> Streams:
        """Run `body`, which computes the streams of the batch.

        A device may record it, and repeat the record for later batches of the same shape. It may then record the
        predictions of a window along with it, which `head` computes of the streams; `Pass.logits` has them.
        """
        ...

    def passes(self, batch: Batch, residual: Streams) -> list[Pass]:
        """What the pass computed, by conversation."""
        ...

    def check(self) -> None:
        """Wait for what was launched, where that can go wrong.

        Raises:
            TierError: a window was given up, for experts that lie elsewhere did not come; its rows are no numbers.
        """
        ...

    @property
    def miss(self) -> float:
        """Seconds that one miss more adds to a window; 0 where no expert can be missed."""
        ...

    def met(self) -> Tally | None:
        """Where the last window's experts were; None where they have one place."""
        ...

    def commit(self, state: State, done: Pass, n: int) -> None:
        """Accept the first n rows of a conversation's pass; the others leave no trace."""
        ...

    def decide(self, done: Sequence[tuple[Any, Pass]], rules: Sequence[Greedy]) -> list[Decision] | None:
        """Take the likeliest tokens of a whole window, and commit the rows that are part of the text.

        Returns:
            What was decided for each conversation; None, and nothing done, where the device leaves that to the host.
        """
        ...

    def draw(self, done: Sequence[tuple[Any, Pass]], rules: Sequence[Drawn]) -> list[Decision | Undecided] | None:
        """As `decide` for tokens that are drawn. Where it is not certain of one, the device says what it found.

        Asked where `looks` is set only.
        """
        ...

    @property
    def looks(self) -> bool:
        """Whether `look` is worth asking."""
        ...

    def look(self, done: Sequence[Pass], wishes: Sequence[Wish]) -> list[list[Candidates]] | None:
        """Find the tokens of a whole window among which the host has to choose; nothing is committed.

        Returns:
            What was found for each conversation's rows; None where the host needs the predictions.
        """
        ...

    def linear(self, x: Activations, w: weights.Matrix) -> Tensor:
        """`x @ w.T`: [T, K] and [N, K] to [T, N]."""
        ...

    def rms(self, x: Tensor, w: Tensor, groups: int = 1) -> Activations:
        """RMS norm of [T, D], each of `groups` parts on its own."""
        ...

    def streams(self, x: Tensor) -> Streams:
        """S copies of [T, H] side by side."""
        ...

    def embed(self, batch: Batch, table: weights.RowTable) -> Tensor:
        """The batch's rows of a table: [T, H]."""
        ...

    def hc_read(self, residual: Streams, w: weights.HyperConnection) -> tuple[Activations, Tensor | None]:
        """Streams to a block's input [T, H] and write-back strengths [T, S]."""
        ...

    def hc_write(self, residual: Streams, out: Tensor, inject: Tensor | None) -> Streams:
        """Add a block's output [T, H] to the streams."""
        ...

    def gdn_project(self, m: Activations, w: weights.Gdn) -> GdnProjected:
        """Projections of [T, H]."""
        ...

    def gdn_mix(self, x: GdnProjected, batch: Batch, number: int, w: weights.Gdn) -> Activations:
        """Short convolution, delta rule, norm and gate: [T, nv*d]."""
        ...

    def gdn_output(self, o: Activations, w: weights.Gdn) -> Tensor:
        """Output projection: [T, H]."""
        ...

    def qsa_project(self, m: Activations, batch: Batch, w: weights.Qsa) -> QsaInputs:
        """Projections, norms and rotation."""
        ...

    def qsa_attend(self, x: QsaInputs, batch: Batch, number: int, w: weights.Qsa, *, sparse: bool) -> Activations:
        """Write the rows' keys and values, attend to what the indexer selects (all, unless sparse), gate.

        Returns:
            [T, nh*hd].
        """
        ...

    def qsa_output(self, o: Activations, w: weights.Qsa) -> Tensor:
        """Output projection: [T, H]."""
        ...

    def route(self, m: Activations, w: weights.Moe) -> Route:
        """Choose each row's experts."""
        ...

    def experts(self, m: Activations, route: Route, w: weights.Moe) -> Tensor:
        """Weighted sum of the chosen experts in the router's order, the shared one last: [T, H]."""
        ...

    def ngram_numbers(self, batch: Batch) -> Any:
        """Hash the batch's ids behind their histories: numbers of table rows, int64 [T, rows_per_token]."""
        ...

    def ngram_ask(self, numbers: Any, w: weights.Ple) -> Any:
        """Begin to read table rows, which are needed some layers later.

        Raises:
            StrataError: a number is outside the table.
        """
        ...

    def ngram_rows(self, asked: Any, w: weights.Ple) -> Activations:
        """The rows that were asked for: [T, rows_per_token*width].

        Raises:
            StrataError: they cannot be read.
        """
        ...

    def ngram_gate(self, residual: Streams, e: Activations, w: weights.Ple) -> NgramGated:
        """Project the embeddings and gate them by the streams."""
        ...

    def ngram_smooth(self, residual: Streams, x: NgramGated, batch: Batch, w: weights.Ple) -> Streams:
        """Add the embeddings, smoothed along each sequence, to the streams."""
        ...
