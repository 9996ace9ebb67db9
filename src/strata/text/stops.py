"""Texts that end an answer."""

from array import array
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from strata.errors import RequestError


class Stops:
    """Watches a text for stop strings while it arrives in pieces.

    The text ends before the stop string that is complete first; of several complete at the same character, the longest
    counts. So nothing depends on how the text was cut, and nothing is generated beyond the first complete one. What may
    still become a stop string waits, and nothing else does.

    A character costs the same however long the text has become and whatever the strings are: each string is followed
    by its failure function (Knuth, Morris, Pratt 1977).

    Attributes:
        hit: the stop string that ended the text; None so far.
    """

    def __init__(self, strings: Any = None) -> None:
        """Start an empty text.

        Args:
            strings: a text, a sequence of texts, or None for no stop strings.

        Raises:
            RequestError: it is something else, or one of them is empty, which would end every answer at once.
        """
        self._strings = sorted(set(_checked(strings)), key=len, reverse=True)
        self._failures = [_failures(string) for string in self._strings]
        self._matched = [0] * len(self._strings)  # characters of each that the text ends with
        self._held = ""
        self.hit: str | None = None

    def push(self, text: str) -> str:
        """Take more of the text.

        Returns:
            What can be shown now. After a hit nothing more comes, whatever is pushed.
        """
        if self.hit is not None:
            return ""
        if not self._strings:
            return text
        whole = self._held + text
        for place in range(len(self._held), len(whole)):
            for number, string in enumerate(self._strings):
                matched = self._step(number, whole[place])
                if matched == len(string):
                    self.hit, self._held = string, ""
                    return whole[: place + 1 - matched]
        free = len(whole) - max(self._matched)
        self._held = whole[free:]
        return whole[:free]

    def flush(self) -> str:
        """The text is over: what was waiting, which is no stop string after all. The next `push` starts a new text."""
        rest, self._held = self._held, ""
        self._matched = [0] * len(self._strings)
        return rest

    def _step(self, number: int, character: str) -> int:
        string, failures = self._strings[number], self._failures[number]
        matched = self._matched[number]
        while matched and string[matched] != character:
            matched = failures[matched - 1]
        matched += string[matched] == character
        self._matched[number] = matched
        return matched


@lru_cache(128)  # all answers to a request, and most requests of a client, have the same
def _failures(string: str) -> "array[int]":
    """For each beginning of a string, how many characters of its own beginning it ends with, itself apart."""
    failures = array("i", bytes(4 * len(string)))
    matched = 0
    for place in range(1, len(string)):
        while matched and string[matched] != string[place]:
            matched = failures[matched - 1]
        matched += string[matched] == string[place]
        failures[place] = matched
    return failures


def _checked(strings: Any) -> list[str]:
    if strings is None:
        return []
    listed = [strings] if isinstance(strings, str) else strings
    if not isinstance(listed, Sequence) or isinstance(listed, bytes | bytearray | memoryview):
        raise RequestError(f"stop must be a text or a list of texts, not {strings!r}")
    for place, string in enumerate(listed):
        named = "stop" if isinstance(strings, str) else f"stop[{place}]"
        if not isinstance(string, str):
            raise RequestError(f"{named} must be a text, not {string!r}")
        if not string:
            raise RequestError(f"{named} is an empty text, which would end every answer at once; leave it out")
    return list(listed)
