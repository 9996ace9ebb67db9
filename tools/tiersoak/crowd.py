"""Clients that walk through conversations, lose patience, and compare every token with what is known."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field

from strata.engine import Finish, FinishReason, Token
from strata.errors import RequestError, RoomError, StrataError
from strata.experts.misses.answer import EXPERTS
from strata.session.scheduler import Scheduler
from tiersoak.asked import Said, Tree, Turn, said
from tiersoak.built import Tiered

LEVELS = (1 / 3, 0.0, 0.6, 0.1, 0.45, 1.0)
"""Shares of the experts that slots are asked for."""

ABSURD = 0.08
"""Share of the resizes that ask for a byte: they are refused, and change nothing."""

CANCELLED = 0.3
"""Share of the requests that are cancelled."""

ALOOF = 0.15
"""Share that go on from what was generated; their bytes are not those of a fresh reading, and not compared."""

CALM = 0.15
"""Chance, whenever somebody may ask, that another number of clients do from then on: one that is alone gets guesses."""

WRONG = 20
"""Faults that are kept in words."""


@dataclass
class Asked:
    """A request under way.

    Attributes:
        turn: which.
        exact: whether its bytes are known.
        patience: units of work after which it is cancelled; None for never.
        enough: tokens after which it is; None for never.
        got: its tokens so far.
        cancelled: nobody wants it any longer.
    """

    turn: Turn
    exact: bool
    patience: int | None = None
    enough: int | None = None
    got: list[Said] = field(default_factory=list)
    cancelled: bool = False


class Crowd:
    """As many conversations as the scheduler runs, and one more that waits.

    Args:
        made: the model in tiers.
        scheduler: on its network.
        tree: what to ask.
        clients: how many.
        seed: of all that is random.

    Attributes:
        count: what happened, by name.
        wrong: what should not have happened, in words.
        level: share of experts that slots were asked for last.
        took: seconds of each resize.
    """

    def __init__(self, made: Tiered, scheduler: Scheduler, tree: Tree, clients: int, seed: int) -> None:
        self._made, self._scheduler, self._tree = made, scheduler, tree
        self._dice, self._clients, self._active = random.Random(seed), clients, clients
        self._at: dict[int, Turn | None] = dict.fromkeys(range(clients))  # the turn that each has had answered
        self._who: dict[str, int] = {}
        self._asked: dict[str, Asked] = {}
        self._number = 0
        self.count: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.level = made.first
        self.took: list[float] = []

    def begin(self) -> None:
        """Count from here on; what was wrong stays."""
        self.count = Counter(wrong=self.count["wrong"])
        self._at = dict.fromkeys(range(self._clients))
        self._made.moves = 0

    def ask(self) -> None:
        """Whoever has nothing under way asks the next turn, or begins anew; now and then only some of them, or one."""
        free, dice = sorted(self._at.keys() - self._who.values()), self._dice
        if free and dice.random() < CALM:
            self._active = dice.choice((1, dice.randint(1, self._clients), self._clients))
        for client in free:
            if client >= self._active:
                break
            at = self._at[client]
            turn = dice.choice(at.after if at is not None and at.after else self._tree.first)
            asked = Asked(turn, at is None or not at.after or dice.random() >= ALOOF)
            if dice.random() < CANCELLED:
                if dice.random() < 0.5:
                    asked.patience = dice.randint(0, 4)
                else:
                    asked.enough = dice.randint(1, max(1, turn.answer - 1))
            self.submit(client, asked)

    def submit(self, client: int, asked: Asked) -> None:
        """One request of a client."""
        name = str(self._number)
        self._number += 1
        self._scheduler.submit(asked.turn.request(name, exact=asked.exact), client=str(client))
        self._who[name], self._asked[name] = client, asked
        self.count["requests"] += 1

    def tick(self, *, fault: bool = False) -> None:
        """One unit of work, perhaps with a fault in it; cancellations come before it."""
        for name, asked in self._asked.items():
            if asked.patience is not None:
                asked.patience -= 1
                if asked.patience < 0:
                    self._cancel(name)
        host = self._made.tier.host
        kept = host._desk[EXPERTS]  # noqa: SLF001  # to be spoilt as in tests
        if fault:
            host._desk[EXPERTS] = 0  # noqa: SLF001  # no message makes sense to the host
        try:
            events = self._scheduler.tick()
        finally:
            host._desk[EXPERTS] = kept  # noqa: SLF001
        self.count["units of work"] += 1
        for name, event in events:
            if isinstance(event, Token):
                self._token(name, said(event))
            elif isinstance(event, Finish):
                self._finish(name, event, fault=fault)
        if fault and any(isinstance(event, Finish) and event.reason is FinishReason.ERROR for _, event in events):
            self.count["faults"] += 1

    def resize(self) -> None:
        """Another number of slots, now and then one that makes no sense."""
        made, before = self._made, self._made.tier.room.slots
        level = self._dice.choice([one for one in LEVELS if one != self.level])
        vram = made.vram(level) if self._dice.random() >= ABSURD else 1
        began = time.perf_counter()
        try:
            made.resize(vram)
        except (RequestError, RoomError) as error:
            self.count["sizes refused"] += 1
            if made.tier.room.slots != before:
                self._fault(f"slots went from {before} to {made.tier.room.slots} though it was refused: {error}")
            return
        except StrataError as error:
            self._fault(f"resize to {level:.2f} of the experts: {type(error).__name__}: {error}")
            return
        self.level = level
        self.took.append(time.perf_counter() - began)
        self.count["resizes"] += 1
        self.count["slots given back"] += max(0, sum(before) - sum(made.tier.room.slots))

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._asked

    def _cancel(self, name: str) -> None:
        asked = self._asked[name]
        if not asked.cancelled:
            asked.cancelled = True
            self._scheduler.cancel(name)

    def _token(self, name: str, one: Said) -> None:
        asked = self._asked[name]
        place, known = len(asked.got), asked.turn.known
        asked.got.append(one)
        if asked.exact:
            self.count["tokens compared"] += 1
            if place >= len(known) or known[place] != one:
                self.count["tokens that differ"] += 1
        if asked.enough is not None and len(asked.got) >= asked.enough:
            self._cancel(name)

    def _finish(self, name: str, end: Finish, *, fault: bool) -> None:
        asked, client = self._asked.pop(name), self._who.pop(name)
        turn, reason = asked.turn, end.reason
        same = asked.got == turn.known[: len(asked.got)]
        if asked.exact and not same:
            place = next(i for i, one in enumerate(asked.got) if [one] != turn.known[i : i + 1])
            self.count["answers that differ"] += 1
            self._fault(
                f"request {name} ({len(turn.prompt)} tokens, {end.usage.cached_tokens} known, {turn.drafting}) differs "
                f"at token {place}: {asked.got[place]} instead of {turn.known[place : place + 1]}"
            )
        self.count["tokens of prompts known"] += end.usage.cached_tokens
        self.count["tokens guessed"] += sum(end.usage.drafted.values())
        self._at[client] = None  # begins anew, unless it was answered
        if reason is FinishReason.ERROR:
            self.count["answers ended by a fault"] += 1
            if not fault:
                self._fault(f"request {name} ended without a fault: {end.error}")
        elif reason is FinishReason.CANCELLED:
            self.count["cancelled in their answer" if asked.got else "cancelled before it"] += 1
            if not asked.cancelled:
                self._fault(f"request {name} was cancelled by nobody")
        elif len(asked.got) != turn.answer:
            self._fault(f"request {name} ended with {reason} after {len(asked.got)} of {turn.answer} tokens")
        else:
            self.count["answers compared whole" if asked.exact else "answers not compared"] += 1
            self._at[client] = turn if asked.exact else None

    def _fault(self, text: str) -> None:
        self.count["wrong"] += 1
        if len(self.wrong) < WRONG:
            self.wrong.append(text)
