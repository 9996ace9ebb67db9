"""One tool call while it arrives.

The hard part is where a value ends, because a value may contain any text, the closing tags included. The rules:

- ``</parameter>`` on a line of its own ends a value if a declared parameter that the call does not have yet follows.
- ``</parameter></function></tool_call>`` ends value and call if the output ends there or another declared call begins.
- A call written out inside the value (opener before closer) is part of the value.
- If other text follows the closing tags, both readings are possible: text after the call, or a value that contains
  the closing tags. Everything from there on waits until a further end of a call, with no opener of its own, proves the
  second reading, or the end of the output proves the first.
"""

import json
from enum import Enum, auto

from strata.text.output.deltas import Delta, ToolCallArguments, ToolCallEnd
from strata.text.output.lexer import Lexeme
from strata.text.output.nesting import Nesting
from strata.text.output.schema import Tool
from strata.text.output.value import ValueWriter


class _At(Enum):
    """Where a call stands."""

    VALUE = auto()
    PARAMETER_CLOSED = auto()
    FUNCTION_CLOSED = auto()
    CALL_CLOSED = auto()
    NEXT_CALL = auto()  # after <tool_call>, before it is known whether a declared function follows
    DOUBT = auto()  # other text after a complete end


class CallReader:
    """Reads lexemes of one call, from its first ``<parameter=...>`` or its ``</function>`` on.

    Attributes:
        rest: None while the call lasts; then the lexemes that turned out to come after it.
        complete: Whether the call came to its end.
    """

    def __init__(self, tool: Tool, index: int, declared: frozenset[str], *, certain: bool) -> None:
        """Start a call.

        Args:
            tool: The tool that is called.
            index: Number of the call.
            declared: Names of all declared tools.
            certain: Whether it is known that no stray end of a call follows, so that the first end counts.
        """
        self.rest: list[Lexeme] | None = None
        self.complete = False
        self._tool = tool
        self._index = index
        self._declared = declared
        self._certain = certain
        self._at = _At.VALUE
        self._seen: set[str] = set()
        self._value: ValueWriter | None = None
        self._inside = Nesting()  # of the value
        self._after = Nesting()  # of the text in doubt
        self._held: list[Lexeme] = []  # since the closing tag that may end the value
        self._end = 0  # how many of them belong to the call
        self._own_line = False  # whether that tag stands where it should
        self._json: list[str] = []

    def feed(self, lexeme: Lexeme) -> list[Delta]:
        """Take the next lexeme."""
        again: Lexeme | None = lexeme
        while again is not None:
            again = self._step(again)
        return self._deltas()

    def finish(self, *, cut: bool) -> list[Delta]:
        """The output has ended.

        Args:
            cut: Whether it was cut off rather than ended by the model, so that a missing closing tag is no slip.
        """
        if self._at in {_At.CALL_CLOSED, _At.NEXT_CALL, _At.DOUBT}:
            self._end_call()
        elif self._at is _At.FUNCTION_CLOSED and not cut:
            self._end = len(self._held)
            self._end_call()
        return self._deltas()

    def _deltas(self) -> list[Delta]:
        text = "".join(self._json)
        self._json.clear()
        deltas: list[Delta] = [ToolCallArguments(self._index, text)] if text else []
        return [*deltas, ToolCallEnd(self._index)] if self.complete else deltas

    def _step(self, lexeme: Lexeme) -> Lexeme | None:
        """Take one lexeme; it comes back if it must be looked at once more."""
        if self._at is _At.VALUE:
            return self._in_value(lexeme)
        if self._at is _At.DOUBT:
            self._in_doubt(lexeme)
        elif lexeme.blank:
            self._held.append(lexeme)
        elif self._at is _At.PARAMETER_CLOSED:
            return self._after_parameter(lexeme)
        elif self._at is _At.FUNCTION_CLOSED:
            return self._after_function(lexeme)
        else:
            return self._after_call(lexeme)
        return None

    def _in_value(self, lexeme: Lexeme) -> Lexeme | None:
        if self._value is None and lexeme.tag == "parameter":
            self._open_value(lexeme.name)
        elif lexeme.tag == "/parameter" and self._value is not None:
            self._own_line = self._value.at_line_start or not self._value.on_own_lines
            self._held, self._at = [lexeme], _At.PARAMETER_CLOSED
        elif lexeme.tag == "/function" and self._value is None:
            self._held, self._at = [lexeme], _At.FUNCTION_CLOSED
        else:
            self._write(lexeme)
        return None

    def _after_parameter(self, lexeme: Lexeme) -> Lexeme | None:
        if lexeme.tag == "/function":
            self._held.append(lexeme)
            self._at = _At.FUNCTION_CLOSED
            return None
        legal = lexeme.tag == "parameter" and lexeme.name not in self._seen and self._tool.accepts(lexeme.name)
        if legal and self._own_line and self._inside.depth == 0:
            self._close_value()
            self._held, self._at = [], _At.VALUE
            self._open_value(lexeme.name)
            return None
        return self._back_to_value(lexeme)

    def _after_function(self, lexeme: Lexeme) -> Lexeme | None:
        if lexeme.tag == "/tool_call":
            self._held.append(lexeme)
            self._end, self._at = len(self._held), _At.CALL_CLOSED
            return None
        if self._value is not None:
            return self._back_to_value(lexeme)
        self._end = len(self._held)  # a call without parameters is complete without its last tag
        self._held.append(lexeme)
        self._end_call()
        return None

    def _after_call(self, lexeme: Lexeme) -> Lexeme | None:
        """After a complete end, or after a complete end and a ``<tool_call>``."""
        if self._inside.depth:
            return self._back_to_value(lexeme)
        self._held.append(lexeme)
        following = self._at is _At.NEXT_CALL and lexeme.tag == "function" and lexeme.name in self._declared
        if self._certain or self._value is None or following:
            self._end_call()
        elif self._at is _At.CALL_CLOSED and lexeme.tag == "tool_call":
            self._at = _At.NEXT_CALL
        else:
            self._at, self._after = _At.DOUBT, Nesting()
            for held in self._held[self._end :]:
                self._after.feed(held)
        return None

    def _in_doubt(self, lexeme: Lexeme) -> None:
        self._held.append(lexeme)
        if not self._after.feed(lexeme):
            return
        # A further end of the call: everything before it is value, and this one is now the end in question.
        first = len(self._held) - self._after.run
        for held in self._held[:first]:
            self._write(held)
        self._held = self._held[first:]
        self._end, self._at = len(self._held), _At.CALL_CLOSED

    def _back_to_value(self, lexeme: Lexeme) -> Lexeme | None:
        """The held lexemes were text; this one is to be looked at in the value."""
        for held in self._held:
            self._write(held)
        self._held, self._at = [], _At.VALUE
        return lexeme

    def _open_value(self, name: str) -> None:
        self._json.append(("{" if not self._seen else ", ") + json.dumps(name, ensure_ascii=False) + ": ")
        self._seen.add(name)
        self._value = ValueWriter(self._tool.schema_of(name), self._tool.parameters)
        self._inside = Nesting()

    def _write(self, lexeme: Lexeme) -> None:
        assert self._value is not None
        self._inside.feed(lexeme)
        self._json.append(self._value.write(lexeme.text))

    def _close_value(self) -> None:
        if self._value is not None:
            self._json.append(self._value.close())

    def _end_call(self) -> None:
        self._close_value()
        self._json.append("}" if self._seen else "{}")
        self.rest, self.complete = self._held[self._end :], True
        self._held = []
