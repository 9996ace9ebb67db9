"""Prompt lookup: what followed the last time these tokens were seen, in the prompt or in the answer so far."""

from collections import defaultdict, deque
from collections.abc import Iterable

SHORTEST = 3
"""Tokens that must match before what followed is worth trying."""

LONGEST = 64
"""Longer matches are not told apart."""

PLACES = 64
"""Most recent places of a token triple that are compared; bounds the work per token on repetitive text."""


class Lookup:
    """An index of every token triple of one conversation.

    Adding a token and asking for a guess both take bounded work, however long the text.
    """

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        """Start with the tokens already read."""
        self._tokens: list[int] = []
        self._after: defaultdict[tuple[int, ...], deque[int]] = defaultdict(lambda: deque(maxlen=PLACES))
        self.extend(tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Add tokens to the end."""
        for token in tokens:
            if len(self._tokens) >= SHORTEST:
                # the triple before this token now has something that followed it
                self._after[tuple(self._tokens[-SHORTEST:])].append(len(self._tokens))
            self._tokens.append(token)

    def guess(self, count: int) -> list[int]:
        """What may follow, at most `count` tokens; empty if nothing matches.

        The earlier place that shares the longest suffix wins, of equals the most recent. A guess that runs into the
        end of the text goes on with its own beginning, so that a repeating text is guessed to any depth.
        """
        tokens = self._tokens
        best, length = len(tokens), 0
        for place in reversed(self._after.get(tuple(tokens[-SHORTEST:]), ())):
            shared = self._shared(place)
            if shared > length:
                best, length = place, shared
        if not length:
            return []
        period = len(tokens) - best
        return [tokens[best + i % period] for i in range(count)]

    def _shared(self, place: int) -> int:
        """Length of the common suffix of the text and the tokens before `place`."""
        tokens, shared = self._tokens, SHORTEST
        while shared < min(place, LONGEST) and tokens[-1 - shared] == tokens[place - 1 - shared]:
            shared += 1
        return shared
