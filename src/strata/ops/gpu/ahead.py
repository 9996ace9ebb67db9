"""A text's next window, launched before the host has read with which token it goes on.

Between two windows the host reads a token, hands it to the answer, and launches what follows: 80 to 100 microseconds
of an H200's 3,300 a token. The device knows the token all the same, and a window changes nothing that is committed. So
the next one is launched at once, with the token where the device has left it; if the host then asks for that very
window, it is there, and if for anything else, it was in vain.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from strata.model.decision import Decision, Greedy
from strata.model.ops import Memory, Segment
from strata.ops.gpu.batch import GpuBatch, GpuPass
from strata.ops.gpu.pool import GpuState, Pool


@dataclass(eq=False, slots=True)
class Ahead:
    """One row that is, or will be, computed behind a state.

    Attributes:
        expected: the state as it will be when the window before is committed.
        batch: what it is computed in.
        place: where it leaves recurrent states; nobody else's until it is taken or dropped.
        residual: float32 [1, S*H], of the row.
        token: that it was computed for, once the host knows it.
    """

    expected: GpuState
    batch: GpuBatch
    place: int
    residual: Tensor | None = None
    token: int = -1

    @classmethod
    def begin(cls, state: GpuState, batch: GpuBatch, tokens: Tensor, ratio: int) -> "Ahead | None":
        """Fill a window of one row behind the window that is being computed; None if there is no room for it.

        Args:
            state: before the commit of that window.
            batch: of that window, with all launches on it made that read its numbers.
            tokens: int32 [1], on the device, what it will have chosen.
            ratio: tokens of a block.
        """
        pool, length, position = state.pool, state.length + 1, state.next_position + 1
        if length >= pool.config.context or not pool.fits([(state, length + 1)]) or not pool.free_places:
            return None
        # It shares the list of pages, which may grow, and is committed into where the window before leaves its states.
        expected = GpuState(length, position, pool, list(state.seat), list(batch.spare_places), state.pages)
        batch.fill([_row(expected, 0)], ratio, pool)
        batch.ids.copy_(tokens)
        (place,) = batch.spare_places
        pool.hold(place)
        return cls(expected, batch, place)

    def serves(self, segments: Sequence[Segment]) -> bool:
        """Whether this is the window that is asked for."""
        if len(segments) != 1 or segments[0].ids != (self.token,):
            return False
        state, expected = segments[0].memory, self.expected
        return (
            isinstance(state, GpuState)
            and (state.length, state.next_position) == (expected.length, expected.next_position)
            and (state.seat, state.home) == (expected.seat, expected.home)
            and state.pages is expected.pages
            and state.mtp is None
        )


class Following:
    """Launches ahead, one at a time.

    Args:
        ratio: tokens of a block.

    Attributes:
        again: computes what is in the batch of one row; None until such a window was met.
    """

    def __init__(self, ratio: int) -> None:
        self._ratio = ratio
        self._kept: Ahead | None = None
        self._computed: Tensor | None = None
        self.again: Callable[[], Tensor] | None = None

    def launch(self, done: Sequence[tuple[GpuState, GpuPass]], rules: Sequence[Greedy]) -> None:
        """Behind the choice that is being made, launch what follows a window of one row that will go on."""
        state, batch = done[0][0], done[0][1].batch
        if batch.counts != (1,) or not rules[0].goes_on or state.mtp is not None or self.again is None:
            return
        assert batch.choice is not None
        self._kept = Ahead.begin(state, batch, batch.choice.tokens, self._ratio)
        if self._kept is not None:
            self._kept.residual = self.again()

    def chosen(self, done: tuple[GpuState, GpuPass], decision: Decision) -> None:
        """The host knows what was chosen, and has committed it."""
        if self._kept is None:
            return
        if decision.ids:
            self._kept.token = decision.ids[-1]
            return
        # The row has no numbers, and the host looks at its predictions: they are computed once more.
        state, one = done
        self._drop(state.pool)
        one.batch.fill([_row(state, one.ids[0])], self._ratio, state.pool)
        assert self.again is not None
        self.again()

    def window(self, segments: Sequence[Segment], pool: Pool) -> GpuBatch | None:
        """The batch of a window that was launched ahead; None, and what was launched was in vain, if it is another."""
        kept, self._computed = self._kept, None
        if kept is None:
            return None
        if not kept.serves(segments):
            self._drop(pool)
            return None
        self._kept, self._computed = None, kept.residual
        pool.lend(kept.place)
        kept.batch.segments = tuple(segments)
        return kept.batch

    def computed(self) -> Tensor | None:
        """float32 [1, S*H], the residual of the window that `window` found; None the second time."""
        found, self._computed = self._computed, None
        return found

    def _drop(self, pool: Pool) -> None:
        assert self._kept is not None
        pool.give_back(self._kept.place)
        self._kept = None


def _row(state: GpuState, token: int) -> Segment:
    """The next token of a text."""
    positions = torch.full((1, 3), state.next_position, dtype=torch.int64)
    return Segment(cast("Memory", state), (token,), positions, slice(0, 1))
