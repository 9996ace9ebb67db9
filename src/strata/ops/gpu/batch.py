"""The rows of a pass on a GPU, and what committing them needs."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strata.model.config import Mixer, ModelConfig
from strata.model.ops import Segment
from strata.ops.gpu.pool import GpuState, Pool
from strata.ops.rope.reference import cos_sin


@dataclass(frozen=True, slots=True)
class GpuPass:
    """`strata.model.ops.Pass`."""

    ids: tuple[int, ...]
    residual: Tensor
    batch: "GpuBatch"
    index: int


@dataclass(slots=True)
class GpuBatch:
    """The rows of a pass. Shapes: T rows, C conversations; all integers are int32.

    Attributes:
        segments: conversations side by side.
        ids: [T].
        slots, lengths, places, spares: [C].
        first: [C + 1]; owner: [T].
        turns: float32 [4, T, half]: cosines and sines of the rows, and of the first token of each row's block.
        u, mixed: float32 [recurrent layers, T, channels].
        decay, strength: float32 [recurrent layers, T, nv].
        normed: float32 [T, S*H], of the n-gram embedding; None without one.
    """

    segments: tuple[Segment, ...]
    ids: Tensor
    slots: Tensor
    lengths: Tensor
    places: Tensor
    spares: Tensor
    first: Tensor
    owner: Tensor
    turns: Tensor
    u: Tensor
    mixed: Tensor
    decay: Tensor
    strength: Tensor
    normed: Tensor | None = None
    open: int = 0  # conversations not committed yet

    @property
    def rows(self) -> int:
        """T."""
        return len(self.ids)

    @property
    def conversations(self) -> int:
        """C."""
        return len(self.slots)


def begin(segments: Sequence[Segment], c: ModelConfig, pool: Pool, device: torch.device) -> GpuBatch:
    """Reserve cells, take spare places, and bring everything that changes from pass to pass to the device."""
    states = [_state(segment) for segment in segments]
    counts = [len(segment.ids) for segment in segments]
    for state, count in zip(states, counts, strict=True):
        pool.reserve(state, state.length + count)
    spares = [pool.spare() for _ in states]
    firsts = [0]
    for count in counts:
        firsts.append(firsts[-1] + count)
    ids = [i for segment in segments for i in segment.ids]
    owner = [i for i, count in enumerate(counts) for _ in range(count)]
    lengths = [state.length for state in states]
    numbers = [*ids, *owner, *(s.slot for s in states), *lengths, *(s.place for s in states), *spares, *firsts]
    sizes = [len(ids), len(ids), len(states), len(states), len(states), len(states), len(firsts)]
    parts = torch.tensor(numbers, dtype=torch.int32).to(device).split(sizes)
    g = c.gdn
    layers = sum(mixer is Mixer.GDN for mixer in c.mixers)

    def room(*shape: int) -> Tensor:
        return torch.empty((layers, len(ids), *shape), dtype=torch.float32, device=device)

    return GpuBatch(
        segments=tuple(segments),
        ids=parts[0],
        owner=parts[1],
        slots=parts[2],
        lengths=parts[3],
        places=parts[4],
        spares=parts[5],
        first=parts[6],
        turns=_turns(segments, states, c).to(device),
        u=room(g.channels),
        mixed=room(g.channels),
        decay=room(g.nv),
        strength=room(g.nv),
        open=len(states),
    )


def _turns(segments: Sequence[Segment], states: Sequence[GpuState], c: ModelConfig) -> Tensor:
    """Angles of the rows and of the blocks they may complete. Text only: a token's position is its cell."""
    rows = torch.cat([segment.positions for segment in segments])
    ratio = c.qsa.ratio
    starts = torch.cat([
        (torch.arange(state.length, state.length + len(segment.ids)) // ratio * ratio)[:, None].expand(-1, 3)
        for state, segment in zip(states, segments, strict=True)
    ])  # fmt: skip
    return torch.stack([*cos_sin(rows, c.rope), *cos_sin(starts, c.rope)])


def _state(segment: Segment) -> GpuState:
    assert isinstance(segment.memory, GpuState)
    return segment.memory
