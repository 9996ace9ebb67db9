"""Which tokens a grammar allows, token by token."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from llguidance import LLMatcher

from strata.errors import StrataError
from strata.text.grammar.gate import Gate, Mask

STEPS = 4
"""Tokens of an answer that are tried before it begins."""


class GrammarError(StrataError):
    """A grammar cannot go on: a limit of its parser was reached. The request ends here."""


class GrammarConstraint:
    """One answer's place in a grammar; `Grammars.constraint` makes it.

    It may wait for a token first, the end of a thinking block. Until then every token is allowed but those that end a
    turn: an answer in the asked form is still to come.

    Args:
        matcher: at the beginning of the grammar.
        vocabulary: V.
        gate: the token to wait for; None begins at once.
    """

    def __init__(self, matcher: LLMatcher, vocabulary: int, gate: Gate | None = None) -> None:
        self._matcher = matcher
        self._vocabulary = vocabulary
        self._gate = gate  # None once it has been passed
        self._tail = b""
        self._mask: Mask | None = None

    @property
    def finished(self) -> bool:
        """Whether the answer is complete and nothing can be added: only a token that ends the turn may follow."""
        return self._gate is None and bool(self._matcher.is_stopped()) and not self._matcher.is_error()

    def allowed(self) -> Mask:
        """The tokens that may come next, [V]; those that end a turn are among them exactly if the answer is complete.

        Raises:
            GrammarError: a limit of the parser was reached.
        """
        if self._gate is not None:
            return self._gate.allowed(self._tail)
        if self._mask is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            self._check()
            mask = np.zeros(self._vocabulary, np.bool_)
            found = np.unpackbits(bits, bitorder="little", count=min(8 * len(bits), len(mask)))
            mask[: len(found)] = found.view(np.bool_)
            self._mask = mask
        return self._mask

    def advance(self, token: int) -> None:
        """Take a token of the answer.

        Raises:
            GrammarError: the grammar does not allow it, or a limit of the parser was reached.
        """
        if self._gate is not None:
            self._tail = self._gate.extended(self._tail, token)
            self._gate = None if token == self._gate.token else self._gate
            return
        self._mask = None
        if not self._matcher.consume_token(token):
            self._check()

    def begin(self, lead: Sequence[int] = ()) -> None:
        """Try the first steps of an answer, which some grammars never get to: nothing fits them, or they are too large.

        Args:
            lead: tokens that may stand before everything else.

        Raises:
            GrammarError: no answer can be begun.
        """
        twin = self.fork()
        twin._gate = None  # noqa: SLF001  # the same class
        for token in lead:
            twin.advance(token)
        for _ in range(STEPS):
            mask = twin.allowed()
            if twin.finished or not mask.any():
                return
            twin.advance(int(mask.argmax()))

    def forced(self) -> list[int]:
        """Tokens that spell what must come next, as the tokenizer would write it; the model may spell it otherwise."""
        return [] if self._gate is not None else self._matcher.compute_ff_tokens()

    def fork(self) -> Self:
        """A constraint at the same place that goes its own way from here."""
        twin = copy(self)
        twin._matcher = self._matcher.deep_copy()  # noqa: SLF001  # the same class
        return twin

    def _check(self) -> None:
        if self._matcher.is_error():
            reason = self._matcher.get_error().removesuffix("<non-verbose/>").strip()
            raise GrammarError(f"the grammar cannot go on, so the answer ends here: {reason}")
