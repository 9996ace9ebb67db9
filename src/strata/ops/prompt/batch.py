"""The rows of a prompt pass on a GPU, and what committing them needs."""

from dataclasses import dataclass

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
        ngram_tail: float32 [1, .., S*H]; history: [1, n-1]; behind the pass.
        segment: the conversation's rows; None once the pass is done.
        spare_place: of ``spares``, on the host.
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
    ngram_tail: Tensor
    history: Tensor
    segment: Segment | None = None
    spare_place: int = -1

    @classmethod
    def empty(cls, room: int, blocks: int, c: ModelConfig, pool: Pool, device: torch.device) -> "PromptBatch":
        """Room for passes of so many rows."""
        g, layers = c.gdn, sum(mixer is Mixer.GDN for mixer in c.mixers)
        sizes = [room] * 6 + [2, 1, 1, 1, 1]
        numbers = torch.zeros(sum(sizes), dtype=torch.int32, device=device)
        ids, positions, starts, homes, seen, owner, first, slots, lengths, places, spares = numbers.split(sizes)
        return cls(
            room, blocks, numbers, ids, positions, starts, homes, seen, owner, first, slots, lengths, places, spares,
            tails=torch.empty((layers, g.conv - 1, g.channels), dtype=torch.float32, device=device),
            ngram_tail=torch.empty_like(pool.ngram_tails[:1]),
            history=torch.empty_like(pool.history[:1]),
        )  # fmt: skip

    @property
    def counts(self) -> Tensor:
        """T, on the device."""
        return self.first[1:]

    def fill(self, segment: Segment, ratio: int, pool: Pool) -> None:
        """Reserve cells, take a spare place, and bring what changes from pass to pass to the device."""
        state, count = segment.memory, len(segment.ids)
        assert isinstance(state, GpuState)
        pool.reserve(state, state.length + count)
        self.segment, self.spare_place = segment, pool.spare()
        rest = torch.zeros(self.room - count, dtype=torch.int64)
        cells = torch.arange(state.length, state.length + count)
        home = torch.full((count,), state.slot)
        parts = torch.tensor(segment.ids), segment.positions[:, 0], cells // ratio * ratio, home, cells + 1
        new = [x for part in parts for x in (part, rest)]
        tail = [0] * self.room + [0, count, state.slot, state.length, state.place, self.spare_place]
        self.numbers.copy_(torch.cat((*new, torch.tensor(tail))).to(torch.int32))


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
