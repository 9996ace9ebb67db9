"""The rows of a prompt pass on a GPU, and what committing them needs."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from strata.model.config import Mixer, ModelConfig
from strata.model.ops import Segment
from strata.ops.gpu.pool import GpuState, Pool


@dataclass(slots=True)
class PromptBatch:
    """The rows of one conversation. All integers are int32.

    Attributes:
        room: rows there is memory for; kernels learn from ``counts`` how many there are.
        blocks: blocks of the indexer there is memory for; none where the budget holds all that the rows can see.
        numbers: everything below that changes from pass to pass, in one piece.
        ids, positions, starts: [room]; ``starts`` is the first token of each row's block.
        homes, seen: [room], of each row: place of its conversation, and its cells with the row's own.
        owner: [room], zero: the conversation of each row, and its first row.
        first: [2], zero and T; counts: [1], T.
        slots, lengths, places, spares: [1].
        tails: float32 [recurrent layers, taps-1, channels], behind the pass.
        left: float32 [attention layers, ratio-1, id], raw indexer keys of the block that the pass leaves open.
        ngram_tail: float32 [1, .., S*H]; history: [1, n-1]; behind the pass.
        segment: the conversation's rows; None once the pass is done.
        spare_place: of ``spares``, on the host.
        pieces: what `parts` made of it, by their rows.
    """

    room: int
    blocks: int
    numbers: Tensor
    ids: Tensor
    positions: Tensor
    starts: Tensor
    homes: Tensor
    seen: Tensor
    owner: Tensor
    first: Tensor
    slots: Tensor
    lengths: Tensor
    places: Tensor
    spares: Tensor
    tails: Tensor
    left: Tensor
    ngram_tail: Tensor
    history: Tensor
    segment: Segment | None = None
    spare_place: int = -1
    pieces: "tuple[int, list[Part]] | None" = None

    @classmethod
    def empty(cls, room: int, blocks: int, c: ModelConfig, pool: Pool, device: torch.device) -> "PromptBatch":
        """Room for passes of so many rows."""
        g, layers = c.gdn, sum(mixer is Mixer.GDN for mixer in c.mixers)
        keys = len(c.mixers) - layers, c.qsa.ratio - 1, c.qsa.id
        sizes = [room] * 6 + [2, 1, 1, 1, 1]
        numbers = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        ids, positions, starts, homes, seen, owner, first, slots, lengths, places, spares = numbers.split(sizes)
        return cls(
            room, blocks, numbers, ids, positions, starts, homes, seen, owner, first, slots, lengths, places, spares,
            tails=torch.empty((layers, g.conv - 1, g.channels), dtype=torch.float32, device=device),
            left=torch.empty(keys, dtype=torch.float32, device=device),
            ngram_tail=torch.empty_like(pool.ngram_tails[:1]),
            history=torch.empty_like(pool.history[:1]),
        )  # fmt: skip

    @property
    def rows(self) -> int:
        """T, on the host, until the pass is done."""
        assert self.segment is not None
        return len(self.segment.ids)

    @property
    def counts(self) -> Tensor:
        """T, on the device."""
        return self.first[1:]

    def fill(self, segment: Segment, ratio: int, pool: Pool) -> None:
        """Reserve cells, take a spare place, and bring what changes from pass to pass to the device."""
        state, count = segment.memory, len(segment.ids)
        assert isinstance(state, GpuState)
        pool.reserve(state, state.length + count)
        self.segment, self.spare_place, self.pieces = segment, pool.spare(), None
        rest = torch.zeros(self.room - count, dtype=torch.int64)
        cells = torch.arange(state.length, state.length + count)
        home = torch.full((count,), state.slot)
        parts = torch.tensor(segment.ids), segment.positions[:, 0], cells // ratio * ratio, home, cells + 1
        new = [x for part in parts for x in (part, rest)]
        tail = [0] * self.room + [0, count, state.slot, state.length, state.place, self.spare_place]
        numbers = torch.cat((*new, torch.tensor(tail))).to(torch.int32)
        self.numbers.copy_(numbers, non_blocking=True)  # the device may still be busy with the state's rows

    def parts(self, rows: int) -> "list[Part]":
        """The pass as passes that follow one another, for what computes so many rows at a time.

        Args:
            rows: of a part, at most; a multiple of the tokens of a block. Parts end at absolute multiples of it, so all
                but the first begin with a block.
        """
        if self.room <= rows:
            return [Part(slice(0, self.room), self)]
        if self.pieces is None or self.pieces[0] != rows:
            assert self.segment is not None, "a pass of many rows is not recorded"
            assert isinstance(self.segment.memory, GpuState)
            before = self.segment.memory.length
            ends = [*range(rows - before % rows, self.room, rows), self.room]
            self.pieces = rows, [self._part(slice(*ends_)) for ends_ in zip([0, *ends[:-1]], ends, strict=True)]
        return self.pieces[1]

    def _part(self, rows: slice) -> "Part":
        count = rows.stop - rows.start
        one = replace(
            self, room=count, ids=self.ids[rows], positions=self.positions[rows], starts=self.starts[rows],
            homes=self.homes[rows], seen=self.seen[rows], owner=self.owner[rows],
            first=(self.first - rows.start).clamp(0, count), lengths=self.lengths + rows.start,
        )  # fmt: skip
        return Part(rows, one)


class Part(NamedTuple):
    """Some rows of a pass, behind those before them.

    Attributes:
        rows: of the pass.
        batch: in which they are all rows. What it holds of what is behind the pass is the pass's.
    """

    rows: slice
    batch: PromptBatch


@dataclass(frozen=True, slots=True)
class PromptPass:
    """`strata.model.ops.Pass`."""

    ids: tuple[int, ...]
    residual: Tensor
    batch: PromptBatch
    logits: None = None
    layers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptRows:
    """Rows of activations for a matrix.

    Attributes:
        half: float16 [room, K].
        counts: int32 [1], how many rows there are.
        rest: float16 [room, K], what ``half`` lacks (`strata.ops.prompt.halves.split`), where something needs it.
    """

    half: Tensor
    counts: Tensor
    rest: Tensor | None = None


@dataclass(slots=True)
class PromptStreams:
    """Residual streams, and what has yet to be added to them: the next read does it on its way.

    Attributes:
        x: float32 [room, S*H].
        counts: int32 [1], how many rows there are.
        out: float32 [room, H], a block's output; None if nothing is due.
        strengths: float32 [room, S], raw write-back strengths.
    """

    x: Tensor
    counts: Tensor
    out: Tensor | None = None
    strengths: Tensor | None = None
