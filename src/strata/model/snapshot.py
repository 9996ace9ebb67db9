"""A state in parts: rows by token range, which conversations share, and what must be kept whole for one boundary.

A state of n tokens is cut at boundaries (numbers of tokens). Everything that grows is a table of rows, and how many
rows a table has is a function of n alone:

    positions, keys, values, raw indexer keys          n
    pooled block keys                                  n // ratio, only complete blocks
    the draft head's cells                             max(n - 1, 0): cell i needs token i + 1
    the draft head's pooled blocks                     max(n - 1, 0) // ratio

So the rows of tokens [a, b) are those from count(a) to count(b), ranges that follow each other join without a gap or an
overlap, and a row always lies in the range of the last token it depends on. What a recurrent layer remembers exists
for one boundary only and is a `Checkpoint`. A span of rows up to a boundary and the checkpoint of that boundary are the
whole state, byte for byte.
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from strata.errors import StrataError
from strata.model.memory import PLAIN, Memory, taken, together
from strata.model.parts import COUNTERS, UNSETTLED, Arrived, Parts, StateParts, everything
from strata.model.state import State

if TYPE_CHECKING:
    from strata.model.config import ModelConfig

Count = Callable[[int], int]
"""Rows of a table after so many tokens."""


class SnapshotError(StrataError):
    """Parts of a state do not belong together, or are not the parts of such a model's state (case K05)."""


@dataclass(frozen=True)
class Span:
    """The rows of tokens [start, end), copied.

    Attributes:
        start: first token.
        end: token behind the last.
        ratio: tokens of an indexer block.
        tables: rows by table; names as `State.tensors` has them.
    """

    start: int
    end: int
    ratio: int
    tables: Mapping[str, Tensor]

    @cached_property
    def bytes(self) -> int:
        """Memory of the rows."""
        return taken(self.tables.values())

    def part(self, start: int, end: int, memory: Memory = PLAIN) -> "Span":
        """The rows of some of the tokens, copied, so that they do not keep the others in memory."""
        if not self.start <= start < end <= self.end:
            raise SnapshotError(f"tokens {start} to {end} are not within a span of {self.start} to {self.end}")
        rows = {}
        for name, table in self.tables.items():
            count = _count(name, self.ratio)
            rows[name] = table[count(start) - count(self.start) : count(end) - count(self.start)]
        tables = together(memory, {name: (some.dtype, some.shape) for name, some in rows.items()})
        for name, some in rows.items():
            tables[name].copy_(some)
        return Span(start, end, self.ratio, tables)


@dataclass(frozen=True)
class Checkpoint:
    """What exists for one boundary only: recurrent states, tails, history, counters, the draft head's residual.

    Attributes:
        length: tokens before the boundary.
        tensors: copies by name; names as `State.tensors` has them.
    """

    length: int
    tensors: Mapping[str, Tensor]

    @cached_property
    def bytes(self) -> int:
        """Memory of the tensors."""
        return taken(self.tensors.values())


def cut(state: Any, start: int, end: int, ratio: int) -> Span:
    """Copy the rows of tokens [start, end) of a settled state; `ratio` is the tokens of an indexer block.

    Raises:
        SnapshotError: the state is not settled or has fewer tokens; or a number is not finite, so nothing may be built
            on it (case P02).
    """
    parts = parts_of(state)
    if not 0 <= start < end <= parts.length:
        raise SnapshotError(f"tokens {start} to {end} are not within a state of {parts.length}")
    ranges = {}
    for name, held in parts.counts().items():
        count = _count(name, ratio)
        if held != count(parts.length):
            raise SnapshotError(
                f"{name} holds {held} rows, but {count(parts.length)} belong to {parts.length} tokens; "
                "only settled states are kept"
            )
        ranges[name] = count(start), count(end)
    tables = parts.rows(ranges)
    _check_finite(parts, tables)
    return Span(start, end, ratio, tables)


def checkpoint(state: Any) -> Checkpoint:
    """Copy what exists for the state's own boundary only.

    Raises:
        SnapshotError: a number is not finite, so nothing may be built on it (case P02); or the state is not settled, or
            holds something that neither a span nor a checkpoint would keep (case K01).
    """
    parts = parts_of(state)
    tensors = parts.singles()
    waiting = sorted(name for name in UNSETTLED & tensors.keys() if tensors.pop(name).numel())
    if waiting:
        raise SnapshotError(
            f"{', '.join(waiting)} of a state of {parts.length} tokens waits; only settled states are kept"
        )
    _check_finite(parts, tensors)
    return Checkpoint(parts.length, tensors)


def assemble(c: "ModelConfig", spans: Sequence[Span], end: Checkpoint, *, drafts: bool) -> State:
    """The state on the CPU whose parts these are.

    Args:
        c: dimensions.
        spans: from the first token to the checkpoint's boundary, each beginning where the one before ends.
        end: the checkpoint.
        drafts: whether the state feeds a draft head.

    Raises:
        SnapshotError: as for `fill`.
    """
    state = State.empty(c, drafts=drafts)
    fill(state, spans, end, c.qsa.ratio)
    return state


def fill(state: Any, spans: Sequence[Span], end: Checkpoint, ratio: int, arrived: Arrived = everything) -> None:
    """Make a state that has not begun the one whose parts these are.

    Args:
        state: on any device.
        spans: from the first token to the checkpoint's boundary, each beginning where the one before ends.
        end: the checkpoint.
        ratio: tokens of an indexer block.
        arrived: for parts whose tensors are still on their way; of a state whose filling it ends with an error nothing
            may be used.

    Raises:
        SnapshotError: the parts leave a gap, stop at another boundary than the checkpoint's, miss or add a table, or
            have another shape or type than such a state's.
        RequestError: the device has no memory for it.
    """
    _check_boundaries(spans, end.length)
    parts = parts_of(state)
    like, rows = parts.like(), {}
    for name, row in like.items():
        rows[name] = [_take(span.tables, name) for span in spans]
        _check_rows(name, row, spans, rows[name], ratio)
    for span in spans:
        _check_names(span.tables, like.keys())
    singles = parts.single_like()
    _check_names(end.tensors, singles.keys())
    for name, old in singles.items():
        value = end.tensors[name]
        if name != COUNTERS and (value.shape != old.shape or value.dtype != old.dtype):
            raise SnapshotError(_unlike(name, value, old.shape, old.dtype))
    arrived([COUNTERS])
    counters = [int(x) for x in end.tensors[COUNTERS]]
    if len(counters) != len(singles[COUNTERS]) or counters[0] != end.length:
        raise SnapshotError(f"the counters {counters} are not those of a state of {end.length} tokens")
    parts.put(rows, end.tensors, arrived)


def parts_of(state: Any) -> Parts:
    """A state of any device as it is taken apart."""
    if isinstance(state, State):
        return StateParts(state)
    parts: Parts = state.parts()
    return parts


def _check_finite(parts: Parts, tensors: Mapping[str, Tensor]) -> None:
    bad = sorted(parts.broken(tensors))
    if bad:
        raise SnapshotError(f"{', '.join(bad)} of a state of {parts.length} tokens is not finite; it is not kept")


def _check_boundaries(spans: Sequence[Span], length: int) -> None:
    at = 0
    for span in spans:
        if span.start != at:
            raise SnapshotError(f"rows from token {at} on are missing: the next span begins at {span.start}")
        at = span.end
    if at != length:
        raise SnapshotError(f"the rows end at token {at}, the recurrent states at {length}")


def _check_rows(name: str, like: Tensor, spans: Sequence[Span], parts: Sequence[Tensor], ratio: int) -> None:
    count = _count(name, ratio)
    for span, part in zip(spans, parts, strict=True):
        expected = (count(span.end) - count(span.start), *like.shape[1:])
        if tuple(part.shape) != expected or part.dtype != like.dtype or span.ratio != ratio:
            raise SnapshotError(_unlike(name, part, expected, like.dtype))


def _check_names(found: Mapping[str, Tensor], known: AbstractSet[str]) -> None:
    if found.keys() != known:
        raise SnapshotError(f"missing or unknown in a snapshot: {', '.join(sorted(found.keys() ^ known))}")


def _take(tensors: Mapping[str, Tensor], name: str) -> Tensor:
    if name not in tensors:
        raise SnapshotError(f"missing or unknown in a snapshot: {name}")
    return tensors[name]


def _unlike(name: str, found: Tensor, shape: Sequence[int], dtype: torch.dtype) -> str:
    return f"{name} is {found.dtype} {list(found.shape)}, expected {dtype} {list(shape)}"


def _count(name: str, ratio: int) -> Count:
    """How many rows a table has after n tokens."""
    behind = 1 if name.startswith("mtp.") else 0
    divisor = ratio if name.endswith(".blocks") else 1
    return lambda n: max(n - behind, 0) // divisor
