"""Prompt lookup: what followed the last time these tokens were seen, in the prompt or in the answer so far."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

SHORTEST = 3
"""Tokens that must match before what followed is worth trying."""

LONGEST = 64
"""Longer matches are not told apart."""

PLACES = 64
"""Most recent places of a token triple that are compared; bounds the work per token on repetitive text."""


class Match(NamedTuple):
    """What may follow, and how many tokens before it are the same as where it was seen; up to `LONGEST` are counted."""

    ids: tuple[int, ...] = ()
    shared: int = 0


class Lookup:
    """An index of every token triple of one conversation.

    Adding a token and asking for a guess both take bounded work, however long the text; about 150 bytes a token.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        """Start with the tokens already read."""
        self._tokens: list[int] = []
        self._newest: dict[tuple[int, ...], int] = {}  # by triple: where the token stands that followed it last
        self._before: list[int] = []  # by place: the place before it with the same triple, 0 where there is none
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens to the end."""
        for token in tokens:
            place, before = len(self._tokens), 0
            if place >= SHORTEST:
                # the triple before this token now has something that followed it
                triple = tuple(self._tokens[-SHORTEST:])
                before = self._newest.get(triple, 0)
                self._newest[triple] = place
            self._before.append(before)
            self._tokens.append(token)

    def guess(self, count: int) -> Match:
        """What may follow, `count` tokens; none if nothing matches.

        The earlier place that shares the longest suffix wins, of equals the most recent. A guess that runs into the
        end of the text goes on with its own beginning, so that a repeating text is guessed to any depth.
        """
        tokens = self._tokens
        best, length = len(tokens), 0
        for place in self._places():
            shared = self._shared(place)
            if shared > length:
                best, length = place, shared
            if length == LONGEST:
                break  # a text of one token over and over would have every place looked at
        if not length:
            return Match()
        period = len(tokens) - best
        return Match(tuple(tokens[best + i % period] for i in range(count)), length)

    def _places(self) -> Iterator[int]:
        """Where the last triple was before and what followed stands, the most recent first."""
        place = self._newest.get(tuple(self._tokens[-SHORTEST:]), 0)
        for _ in range(PLACES):
            if not place:
                return
            yield place
            place = self._before[place]

    def _shared(self, place: int) -> int:
        """Length of the common suffix of the text and the tokens before `place`."""
        tokens, shared = self._tokens, SHORTEST
        while shared < min(place, LONGEST) and tokens[-1 - shared] == tokens[place - 1 - shared]:
            shared += 1
        return shared
