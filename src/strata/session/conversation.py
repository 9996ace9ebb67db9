"""One request on its way through the scheduler."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strata.session.spacing import planned

if TYPE_CHECKING:
    from strata.engine import Generation, Request
    from strata.session.room import Aside
    from strata.session.store import Place

WHOLE = 64
"""Boundaries at which a device that reads in chunks is where a fresh reading would be."""


@dataclass(slots=True, eq=False)
class Conversation:
    """A request, and what has become of it.

    Attributes:
        request: what was asked.
        submitted: when.
        generation: once its prompt is being read.
        symbols: of its state's tokens, with their form (see `strata.session.prefix`).
        boundaries: token counts at which its state is worth keeping.
        place: where in the store it is, pinned.
        kept: places that hold something only because of this request.
        cached: tokens of the prompt that had been read before.
        cancelled: nobody wants it any longer.
        aside: its state, while the device has no memory for it; its generation's state is then empty.
    """

    request: "Request"
    submitted: float
    generation: "Generation | None" = None
    symbols: list[int] = field(default_factory=list)
    boundaries: frozenset[int] = frozenset()
    place: "Place | None" = None
    kept: "list[Place]" = field(default_factory=list)
    cached: int = 0
    cancelled: bool = False
    aside: "Aside | None" = None

    def begin(self, generation: "Generation", before: Sequence[int], step: int, *, same_forms: bool) -> None:
        """Its prompt is read from now on.

        Args:
            generation: whose state holds the tokens of `before`.
            before: symbols that are read already.
            step: tokens between checkpoints that nobody asked for.
            same_forms: whether prompts and windows compute the same bytes.
        """
        prompt = self.request.prompt
        self.generation = generation
        self.cached = len(before)
        # Whoever goes on from what a fresh reading gives, at the beginning of a chunk, gets what a fresh reading gives.
        fresh = same_forms or (self.cached % WHOLE == 0 and min(before, default=0) >= 0)
        self.symbols = [*before, *(t if fresh else ~t for t in prompt[self.cached :])]
        self.boundaries = frozenset(planned(self.cached, len(prompt), step, self.request.marks))

    def chose(self, tokens: Sequence[int], *, same_forms: bool) -> None:
        """Tokens were generated; the state holds all but the newest."""
        self.symbols += [t if same_forms else ~t for t in tokens]
