"""What is asked of the engine, as one frozen object."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from strata.engine.drafting.options import Drafting
from strata.engine.sampling import Sampling
from strata.errors import RequestError

if TYPE_CHECKING:
    from strata.engine.constraint import Constraint


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to compute.

    Attributes:
        id: names the request among those that run.
        prompt: token ids, at least one.
        sampling: how tokens are chosen.
        stop_ids: tokens that end the answer.
        max_tokens: most tokens to generate; None, or more than fits, means what the context leaves.
        drafting: what may be guessed ahead; never changes the answer.
        constraint: which tokens may follow which; a fork of it is used, so the request can be run again.
        logprobs: how many of the likeliest tokens come with every token, 0 to 20; None is 0.
        banned: ids that are never chosen and have no probability, such as padding rows of the vocabulary.
        priority: higher goes first.
        timeout: seconds from submission after which the answer ends; None waits for ever.
        keep: whether the conversation may be stored for later requests.
        marks: prompt lengths at which a checkpoint is worth while, such as the end of the system prompt.
        salt: what besides the tokens the prompt depends on, such as the content of images; part of the stored key.
        exact: read generated text again as a prompt instead of going on with what was kept.

    Raises:
        RequestError: a value makes no sense whatever the model.
    """

    id: str
    prompt: tuple[int, ...]
    sampling: Sampling = field(default_factory=Sampling)
    stop_ids: frozenset[int] = frozenset()
    max_tokens: int | None = None
    drafting: Drafting = field(default_factory=Drafting)
    constraint: "Constraint | None" = field(default=None, compare=False)
    logprobs: int | None = None
    banned: Sequence[int] | NDArray[np.int64] = field(default=(), compare=False, repr=False)
    priority: int = 0
    timeout: float | None = None
    keep: bool = True
    marks: tuple[int, ...] = ()
    salt: str = ""
    exact: bool = False

    def __post_init__(self) -> None:
        """Check what needs no model to be checked."""
        if not self.prompt:
            raise RequestError("the prompt is empty; it needs at least one token")
        most = self.max_tokens
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
            raise RequestError(f"max_tokens must be an integer of at least 1, not {most!r}")
        wait: Any = self.timeout
        if wait is not None and not (isinstance(wait, int | float) and 0 < wait < math.inf):
            raise RequestError(f"timeout must be a number of seconds above 0, not {wait!r}")
        outside = next((m for m in self.marks if not 0 <= m <= len(self.prompt)), None)
        if outside is not None:
            raise RequestError(f"mark {outside} is outside the prompt of {len(self.prompt)} tokens")
