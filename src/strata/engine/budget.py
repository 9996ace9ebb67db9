"""A hard limit on how many tokens an answer may think."""

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from strata.engine.constraint import Constraint

_WAIT = 4
"""Tokens for which the rest of a character is waited for; one that is not coming is no reason to go on."""


@dataclass(frozen=True, slots=True)
class Limit:
    """How long an answer that begins inside a think block may stay there.

    Attributes:
        most: tokens of thinking.
        closing: tokens written when they are used up, `end` among them.
        end: the token that ends the block.
        call: tokens that begin and end a tool call: one that is begun inside the block is not interrupted.
        spelled: the bytes of a token, so that no character is broken by the end; None where tokens are characters.
    """

    most: int
    closing: tuple[int, ...]
    end: int
    call: tuple[int, int] | None = None
    spelled: Callable[[int], bytes] | None = None


class Budget:
    """A constraint that ends the thinking in time, and leaves the rest to another one.

    Args:
        limit: of thinking.
        vocabulary: V.
        inner: what the rest of the answer must look like; None is anything. It hears of every token.
    """

    def __init__(self, limit: Limit, vocabulary: int, inner: Constraint | None = None) -> None:
        self._limit = limit
        self._vocabulary = vocabulary
        self._inner = inner
        self._left = limit.most
        self._closing: tuple[int, ...] = () if limit.most > 0 else limit.closing
        self._open = True
        self._calling = False
        self._tail = b""

    @property
    def finished(self) -> bool:
        """Whether only a stop token may follow."""
        return not self._closing and self._inner is not None and self._inner.finished

    def allowed(self) -> NDArray[np.bool_] | None:
        """The tokens that may come next, [V]; None where every token may."""
        if self._closing:
            mask = np.zeros(self._vocabulary, np.bool_)
            mask[self._closing[0]] = True
            return mask
        return None if self._inner is None else self._inner.allowed()

    def advance(self, token: int) -> None:
        """Take a token of the answer."""
        if self._inner is not None:
            self._inner.advance(token)
        if token == self._limit.end:
            self._open = False
        if self._closing:
            self._closing = self._closing[1:]
        elif self._open:
            self._left -= 1
            if self._limit.call is not None and token in self._limit.call:
                self._calling = token == self._limit.call[0]
            if self._limit.spelled is not None:
                self._tail = (self._tail + self._limit.spelled(token))[-4:]
            if self._left <= 0 and not self._calling and (self._left < -_WAIT or not broken(self._tail)):
                self._closing, self._open = self._limit.closing, False

    def forced(self) -> list[int]:
        """Tokens that must come next."""
        if self._closing:
            return list(self._closing)
        return [] if self._inner is None else self._inner.forced()

    def fork(self) -> Self:
        """A constraint in the same state that goes its own way from here."""
        twin = copy(self)
        twin._inner = None if self._inner is None else self._inner.fork()  # noqa: SLF001  # the same class
        return twin


def broken(tail: bytes) -> bool:
    """Whether a text ends inside a character, going by its last four bytes."""
    for back in range(1, min(4, len(tail)) + 1):
        byte = tail[-back]
        if byte >= 0xC0:  # the first byte of a character of 2, 3 or 4
            return back < (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
        if byte < 0x80:
            return False
    return False
