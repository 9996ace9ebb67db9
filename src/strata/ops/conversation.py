"""What the CPU does conversation by conversation: convolutions, the delta rule, attention, the n-gram hash, commits.

Everything here takes rows of a pass that belong together and what they look back on. The matrices, which meet the rows
of all conversations at once, are in `strata.ops.cpu`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strata.model.ops import Angles, Segment
from strata.model.rows import Rows
from strata.model.state import GdnState, QsaState, State
from strata.ops.gdn.project import GdnInputs


@dataclass(slots=True)
class Record:
    """What a pass notes of one segment on its way through the layers."""

    gdn: dict[int, GdnInputs] = field(default_factory=dict)  # by layer
    after: dict[int, Tensor] = field(default_factory=dict)  # the recurrent state after all rows, by layer
    ngram: Tensor | None = None  # [T, S*H], rows the convolution of the n-gram branch will look back on


@dataclass(frozen=True, slots=True)
class CpuBatch:
    """The rows of a pass.

    Attributes:
        segments: conversations side by side.
        angles: of all rows.
        records: of each segment.
        layers: when each began, as far as they have been computed.
    """

    segments: tuple[Segment, ...]
    angles: Angles
    records: tuple[Record, ...]
    layers: list[int] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        """Of all rows."""
        return [i for segment in self.segments for i in segment.ids]


@dataclass(frozen=True, slots=True)
class CpuPass:
    """`strata.model.ops.Pass`."""

    ids: tuple[int, ...]
    positions: Tensor
    residual: Tensor
    record: Record
    layers: Sequence[int] = ()
    logits: None = None


def begin(segments: Sequence[Segment], angles: Callable[[Tensor], Angles]) -> CpuBatch:
    """Write the rows' positions behind the committed ones."""
    for segment in segments:
        segment.memory.positions.write(segment.positions)
    turned = angles(torch.cat([segment.positions for segment in segments]))
    return CpuBatch(tuple(segments), turned, tuple(Record() for _ in segments))


def passes(batch: CpuBatch, residual: Tensor) -> list[CpuPass]:
    """The rows of each conversation, and its record."""
    return [
        CpuPass(s.ids, s.positions, residual[s.rows], record, batch.layers)
        for s, record in zip(batch.segments, batch.records, strict=True)
    ]


def extend(
    memory: QsaState,
    positions: Rows,
    rows: tuple[Tensor, Tensor, Tensor],
    ratio: int,
    block_keys: Callable[[Tensor, Tensor], Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Write rows' keys, values and raw indexer keys behind a layer's end, and the keys of the blocks they complete.

    Args:
        memory: of one attention layer.
        positions: of its tokens.
        rows: keys [T, nkv, hd], values, and raw indexer keys [T, id].
        ratio: tokens per block.
        block_keys: raw keys and the position of each block's first token to block keys.

    Returns:
        All keys and values, as they are stored, and block keys, the new ones included.
    """
    for table, new in zip((memory.k, memory.v, memory.ik), rows, strict=True):
        table.write(table.encode(new))
    seen = memory.k.length + len(rows[0])
    old, complete = memory.blocks.length, seen // ratio
    if complete > old:
        first = positions.upto(seen)[old * ratio : complete * ratio : ratio]
        memory.blocks.write(block_keys(memory.ik.upto(seen)[old * ratio : complete * ratio], first))
    return memory.k.upto(seen), memory.v.upto(seen), memory.blocks.upto(complete)


def commit(state: State, done: CpuPass, n: int, ratio: int, advance: Callable[[GdnInputs, Tensor], Tensor]) -> None:
    """Accept the first n rows; the others leave no trace."""
    for number, memory in enumerate(state.layers):
        if isinstance(memory, QsaState):
            memory.commit(n, ratio)
            continue
        assert isinstance(memory, GdnState)
        kept, s = done.record.gdn[number].first(n), done.record.after[number]
        memory.s = s if n == len(done.ids) else advance(kept, memory.s)
        memory.tail = _last_rows(memory.tail, kept.u)
    if done.record.ngram is not None:
        state.ngram_tail = _last_rows(state.ngram_tail, done.record.ngram[:n])
    state.history = (*state.history, *done.ids[:n])[n:]
    state.positions.commit(n)
    state.length += n
    if n:
        state.next_position = max(state.next_position, int(done.positions[:n].max()) + 1)


def joined(parts: list[Tensor]) -> Tensor:
    """Rows of all conversations in order."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _last_rows(old: Tensor, new: Tensor) -> Tensor:
    """As many rows as `old` has, from the end of old and new together."""
    return torch.cat((old, new))[new.shape[0] :]
