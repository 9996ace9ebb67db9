"""What is asked: a tree of conversations whose turns build on answers that are known before."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from strata.engine import Drafting, Finish, FinishReason, Request, Sampling, Token
from strata.errors import StrataError
from strata.model import Network
from strata.session.options import Options
from strata.session.scheduler import Scheduler

Said = tuple[int, float, Any]
"""A token as it is compared: id, log-probability, and the likeliest ones with theirs."""

SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, seed=11),
    Sampling(temperature=1.0, top_p=0.9, top_k=40, seed=5),
    Sampling(temperature=0.7, seed=3, repetition_penalty=1.1, penalty_window=64),
)


@dataclass(frozen=True)
class Shape:
    """How large the tree is.

    Attributes:
        prefixes: tokens of each text that conversations begin with together.
        branches: turns that go on from one, by depth.
        turn: fewest and most tokens that a turn adds.
        answer: likewise of its answer.
    """

    prefixes: tuple[int, ...]
    branches: tuple[int, ...]
    turn: tuple[int, int]
    answer: tuple[int, int]

    @property
    def context(self) -> int:
        """Most tokens of a conversation, with room for a window."""
        return max(self.prefixes) + len(self.branches) * (self.turn[1] + self.answer[1]) + 16


BROAD = Shape((0, 300, 1400), (3, 2, 2), (8, 160), (8, 40))
NARROW = Shape((0, 66), (1, 2), (3, 9), (3, 6))
"""What the interpreter manages: a pass over a prompt takes it some seconds, and so does a window."""

BRIEF = Shape((0,), (2,), (3, 5), (2, 3))
"""What a test waits for."""


@dataclass(eq=False)
class Turn:
    """One request that is asked again and again.

    Attributes:
        prompt: all of its conversation so far.
        sampling, drafting, answer, logprobs: how it is answered, and for how many tokens.
        known: what the network with all experts says.
        after: turns that go on from its answer.
    """

    prompt: tuple[int, ...]
    sampling: Sampling
    drafting: Drafting
    answer: int
    logprobs: int
    known: list[Said] = field(default_factory=list)
    after: "list[Turn]" = field(default_factory=list)

    def request(self, name: str, *, exact: bool = True, keep: bool = True) -> Request:
        """It, with a name; `exact`, so that the answer does not depend on what is kept."""
        return Request(
            name, self.prompt, sampling=self.sampling, max_tokens=self.answer, drafting=self.drafting,
            logprobs=self.logprobs, exact=exact, keep=keep,
        )  # fmt: skip


class Tree:
    """All turns.

    Args:
        network: with all experts; answers each turn once, so that the next ones are known.
        shape: how many there are.
        seed: of all that is random.

    Attributes:
        first: turns that begin a conversation.
        count: of all turns.
    """

    def __init__(self, network: Network, shape: Shape, seed: int) -> None:
        self._dice, self._shape, self._network = random.Random(seed), shape, network
        self.first: list[Turn] = []
        self.count = 0
        before: list[tuple[list[Turn], tuple[int, ...]]] = [(self.first, self._ids(n)) for n in shape.prefixes]
        for branches in shape.branches:
            made = [self._turn(to, prompt) for to, prompt in before for _ in range(branches)]
            answer(network, made)
            self.count += len(made)
            before = [(turn.after, (*turn.prompt, *(said[0] for said in turn.known))) for turn in made]

    def all(self) -> Iterator[Turn]:
        """Every turn, those that come first before what follows them."""
        some = self.first
        while some:
            yield from some
            some = [one for turn in some for one in turn.after]

    def _turn(self, to: list[Turn], prompt: tuple[int, ...]) -> Turn:
        dice = self._dice
        head = self._network.drafts
        drafting = dice.choice([Drafting(), Drafting(depth=3, head=head), Drafting(depth=4, measured=True, head=head)])
        turn = Turn(
            (*prompt, *self._ids(dice.randint(*self._shape.turn))), dice.choice(SAMPLINGS), drafting,
            dice.randint(*self._shape.answer), dice.choice((0, 5)),
        )  # fmt: skip
        to.append(turn)
        return turn

    def _ids(self, count: int) -> tuple[int, ...]:
        """Tokens with repeats, of which the lookup finds some."""
        some = [self._dice.randrange(1, self._network.config.V) for _ in range(max(4, count // 3))]
        return tuple(self._dice.choice(some) for _ in range(count))


def said(token: Token) -> Said:
    """A token as it is compared."""
    return token.id, token.logprob, token.top


def answer(network: Network, turns: Sequence[Turn]) -> None:
    """Answer turns, four at a time, nothing of them kept.

    Raises:
        StrataError: one of them was not answered.
    """
    scheduler = Scheduler(network, Options(slots=4, queue=len(turns), keep=False, same_forms=network.same_forms))
    by_name = {str(number): turn for number, turn in enumerate(turns)}
    for name, turn in by_name.items():
        scheduler.submit(turn.request(name, keep=False))
    while not scheduler.idle:
        for name, event in scheduler.tick():
            if isinstance(event, Token):
                by_name[name].known.append(said(event))
            elif isinstance(event, Finish) and event.reason is not FinishReason.LENGTH:
                raise event.error or StrataError(f"an answer ended with {event.reason}")
    scheduler.close()
