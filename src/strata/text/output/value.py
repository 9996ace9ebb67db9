"""The value of one parameter while it arrives, as JSON."""

import json
from collections.abc import Mapping
from typing import Any

from strata.text.output.coerce import surely_string, to_json
from strata.text.output.schema import choices, kinds


class ValueWriter:
    """JSON of a value, as soon as it is certain.

    A string flows as it comes. Any other type is decided by the whole text, so it comes at the end. One newline after
    the opening tag and one before the closing tag belong to the format, not to the value.
    """

    def __init__(self, schema: Any, root: Mapping[str, Any]) -> None:
        """Start a value.

        Args:
            schema: The parameter's schema.
            root: The schema that references start from.
        """
        self._schema = schema
        self._root = root
        self._kinds = kinds(schema, root)
        self._listed = choices(schema, root) is not None
        self._parts: list[str] = []  # of a value that waits for its end
        self._length = 0
        self._first = ""  # its first character that is not white space
        self._quoted = False  # whether the string's opening quote is out
        self._newline = ""  # a newline that may be the last one
        self._empty = True
        self.on_own_lines = False
        """Whether a newline followed the opening tag."""

    @property
    def at_line_start(self) -> bool:
        """Whether what comes next stands at the beginning of a line."""
        return bool(self._newline) or (self._empty and self.on_own_lines)

    def write(self, text: str) -> str:
        """Take more of the value; the JSON that is certain now."""
        if self._empty and not self.on_own_lines and text.startswith("\n"):
            self.on_own_lines = True
            text = text[1:]
        if not text:
            return ""
        self._empty = False
        text = self._newline + text
        self._newline = "\n" if text.endswith("\n") else ""
        return self._put(text[:-1] if self._newline else text)

    def close(self) -> str:
        """End the value, without the newline before the closing tag; the rest of its JSON."""
        self._newline = ""
        if self._quoted:
            return '"'
        return to_json("".join(self._parts), self._schema, self._root)

    def _put(self, text: str) -> str:
        if not self._quoted:
            self._parts.append(text)
            self._length += len(text)
            self._first = self._first or text.lstrip()[:1]
            if not self._is_string():
                return ""
            text = "".join(self._parts)
            self._parts.clear()
            self._quoted = True
            return json.dumps(text, ensure_ascii=False)[:-1]
        return json.dumps(text, ensure_ascii=False)[1:-1]

    def _is_string(self) -> bool:
        """Whether the value can only be a string, whatever follows."""
        return not self._listed and surely_string(self._kinds, self._length, self._first)
