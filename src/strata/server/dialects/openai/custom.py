"""The plain text in the arguments of a custom tool's call, as it comes.

The model calls such a tool as a function with one text, so its arguments are `{"input": "..."}`; the client gets the
text alone.
"""

import json
import re

_START = '{"input": "'
_BODY = re.compile(r'(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*')
_HALF = re.compile("[\ud800-\udfff]")


class PlainInput:
    """Takes JSON in pieces and gives the text in pieces. What is no such object is gathered, and is the text itself."""

    def __init__(self) -> None:
        self._tail = ""  # not decoded yet
        self._begun = False
        self._over = False
        self._other = False  # it is something else

    def push(self, fragment: str) -> str:
        """The text that a piece of JSON adds."""
        if self._over:
            return ""
        self._tail += fragment
        if not self._begun:
            if self._other or (len(self._tail) < len(_START) and _START.startswith(self._tail)):
                return ""
            if not self._tail.startswith(_START):
                self._other = True
                return ""
            self._tail, self._begun = self._tail[len(_START) :], True
        found = _BODY.match(self._tail)
        assert found is not None, "it matches nothing, too"
        self._tail = self._tail[found.end() :]
        self._over = self._tail.startswith('"')
        return _HALF.sub("\ufffd", json.loads(f'"{found[0]}"', strict=False))

    def end(self) -> str:
        """What was gathered."""
        return self._tail if self._other else ""


def plain_input(arguments: str) -> str:
    """The text in whole arguments, or in as much of them as there is."""
    text = PlainInput()
    return text.push(arguments) + text.end()
