"""The rows of a pass on a GPU, and what committing them needs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from strata.model.config import Mixer, ModelConfig
from strata.model.ops import WINDOW_ROWS, Segment
from strata.ops.gpu.choice import Choice
from strata.ops.gpu.pool import GpuState, Pool


@dataclass(frozen=True, slots=True)
class GpuPass:
    """`strata.model.ops.Pass`."""

    ids: tuple[int, ...]
    residual: Tensor
    batch: "GpuBatch"
    index: int
    logits: Tensor | None
    layers: tuple[int, ...] = ()


class Kept:
    """What a pass leaves for its commit, as `gdn.gpu.window` has it: 3.8 MB a row at the released shapes.

    Passes that share it overwrite one another's.

    Args:
        most: rows of the longest.
        c: dimensions.
        device: where.
    """

    def __init__(self, most: int, c: ModelConfig, device: torch.device) -> None:
        g = c.gdn
        self._layers = sum(mixer is Mixer.GDN for mixer in c.mixers)
        self._widths = g.channels, g.channels, g.nv * g.d, g.nv
        size = most * self._layers * sum(self._widths)
        self._numbers = torch.empty(size, dtype=torch.float32, device=device)

    def of(self, rows: int) -> list[Tensor]:
        """Of T rows: u, mixed float32 [recurrent layers, T, channels], steps [.., T, nv * d], decay [.., T, nv]."""
        sizes = [rows * self._layers * width for width in self._widths]
        pieces = self._numbers[: sum(sizes)].split(sizes)
        return [x.view(self._layers, rows, width) for x, width in zip(pieces, self._widths, strict=True)]


@dataclass(slots=True)
class GpuBatch:
    """The rows of a pass. Shapes: T rows, C conversations; all integers are int32.

    Attributes:
        counts: rows of each conversation.
        numbers: everything below that changes from pass to pass, in one piece.
        staged: the same on the host, pinned, for one copy that nobody waits for.
        copied: when that copy was made; None where it is made at once.
        ids, owner, positions, starts: [T]; `starts` is the first token of each row's block.
        homes, begins, seen: [T], by row: the slot of its conversation, that one's first row, and its cells with the
            row's own.
        slots, lengths, places, spares: [C].
        first: [C + 1].
        u, mixed, steps, decay: for the commit, see `Kept`.
        normed: float32 [T, S*H], of the n-gram embedding; set by the pass, None without one.
        left: float32 [attention layers, ratio-1, id], of more rows than a window may have, all of one conversation: raw
            indexer keys of the block that they leave open. None of a window, whose keys are where they stay.
        logits: float32 [T, V], of a window; set by the pass.
        segments: conversations side by side.
        spare_places: of `spares`, on the host.
        choice: where the device chooses; made when it is first asked to.
        asked: rows of an n-gram table that is not on the device, on their way.
    """

    counts: tuple[int, ...]
    numbers: Tensor
    staged: Tensor
    copied: torch.cuda.Event | None
    ids: Tensor
    owner: Tensor
    positions: Tensor
    starts: Tensor
    homes: Tensor
    begins: Tensor
    seen: Tensor
    slots: Tensor
    lengths: Tensor
    places: Tensor
    spares: Tensor
    first: Tensor
    u: Tensor
    mixed: Tensor
    steps: Tensor
    decay: Tensor
    left: Tensor | None = None
    normed: Tensor | None = None
    logits: Tensor | None = None
    segments: tuple[Segment, ...] = ()
    spare_places: list[int] = field(default_factory=list)
    choice: Choice | None = None
    asked: Any = None

    @classmethod
    def empty(
        cls, counts: tuple[int, ...], c: ModelConfig, device: torch.device, kept: "Kept | None" = None
    ) -> "GpuBatch":
        """Room for passes of one shape; of its own, or with what others keep for their commit."""
        numbers = torch.zeros(sum(sizes(counts)), dtype=torch.int32, device=device)
        on_gpu = device.type == "cuda"
        staged = torch.zeros(len(numbers), dtype=torch.int32, pin_memory=on_gpu)
        return cls.over(counts, c, numbers, staged, torch.cuda.Event() if on_gpu else None, kept)

    @classmethod
    def over(
        cls, counts: tuple[int, ...], c: ModelConfig, numbers: Tensor, staged: Tensor, copied: torch.cuda.Event | None,
        kept: "Kept | None" = None,
    ) -> "GpuBatch":  # fmt: skip
        """The same in numbers that are there: `sizes` of them, on the device and staged."""
        rows, device = sum(counts), numbers.device
        assert rows <= WINDOW_ROWS or len(counts) == 1, "long passes are of one conversation"
        u, mixed, steps, decay = (kept or Kept(rows, c, device)).of(rows)
        attention = sum(mixer is not Mixer.GDN for mixer in c.mixers)
        keys = (attention, c.qsa.ratio - 1, c.qsa.id) if rows > WINDOW_ROWS else None
        split = numbers.split(sizes(counts))
        ids, owner, positions, starts, homes, begins, seen, slots, lengths, places, spares, first = split
        return cls(
            counts=counts,
            numbers=numbers,
            staged=staged,
            copied=copied,
            ids=ids,
            owner=owner,
            positions=positions,
            starts=starts,
            homes=homes,
            begins=begins,
            seen=seen,
            slots=slots,
            lengths=lengths,
            places=places,
            spares=spares,
            first=first,
            u=u,
            mixed=mixed,
            steps=steps,
            decay=decay,
            left=None if keys is None else torch.empty(keys, dtype=torch.float32, device=device),
        )

    @property
    def rows(self) -> int:
        """T."""
        return len(self.ids)

    @property
    def conversations(self) -> int:
        """C."""
        return len(self.slots)

    @property
    def firsts(self) -> list[int]:
        """Each conversation's first row, and the number of rows."""
        return list(accumulate(self.counts, initial=0))

    def fill(self, segments: Sequence[Segment], ratio: int, pool: Pool) -> None:
        """Reserve cells, take spare places, and bring what changes from pass to pass to the device."""
        states = [_state(segment) for segment in segments]
        for state, count in zip(states, self.counts, strict=True):
            pool.reserve(state, state.length + count)
        self.segments = tuple(segments)
        self.spare_places = [pool.spare() for _ in states]
        positions = [p for segment in segments for p in segment.positions[:, 0].tolist()]
        ids = [i for segment in segments for i in segment.ids]
        lengths = [state.length for state in states]
        send(self.told(states, ids, positions, lengths, ratio), self.numbers, self.staged, self.copied)

    def told(
        self,
        states: Sequence[GpuState],
        ids: Sequence[int],
        positions: Sequence[int],
        lengths: Sequence[int],
        ratio: int,
    ) -> list[int]:
        """What changes from pass to pass, in its order, of conversations that have so many cells before their rows."""
        counts = self.counts
        numbers = [*ids, *(i for i, count in enumerate(counts) for _ in range(count)), *positions]
        for length, count in zip(lengths, counts, strict=True):
            numbers += [cell // ratio * ratio for cell in range(length, length + count)]
        numbers += [state.slot for state, count in zip(states, counts, strict=True) for _ in range(count)]
        numbers += [begin for begin, count in zip(self.firsts, counts, strict=False) for _ in range(count)]
        for length, count in zip(lengths, counts, strict=True):
            numbers += range(length + 1, length + count + 1)
        numbers += [state.slot for state in states]
        numbers += lengths
        numbers += [state.place for state in states]
        numbers += self.spare_places
        numbers += self.firsts
        return numbers


def sizes(counts: tuple[int, ...]) -> list[int]:
    """How many numbers of each kind `GpuBatch.numbers` holds."""
    rows, conversations = sum(counts), len(counts)
    return [rows] * 7 + [conversations] * 4 + [conversations + 1]


def send(told: Sequence[int], numbers: Tensor, staged: Tensor, copied: torch.cuda.Event | None) -> None:
    """Bring integers to the device, in one copy that nobody waits for."""
    if copied is not None:
        copied.synchronize()  # the last copy may still have to be made
    staged.numpy()[:] = told
    numbers.copy_(staged, non_blocking=True)
    if copied is not None:
        copied.record()


def _state(segment: Segment) -> GpuState:
    assert isinstance(segment.memory, GpuState)
    return segment.memory
