"""Model output to reasoning, content and tool calls."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strata.text.output.call import CallReader
from strata.text.output.deltas import Content, Delta, Reasoning, ToolCallStart, merged
from strata.text.output.lexer import BLANKS, Lexeme, Lexer
from strata.text.output.schema import read_tools


def _nothing(text: str) -> str:
    return text


def _newlines(text: str) -> str:
    return text.lstrip("\n")


def _blanks(text: str) -> str:
    return text.lstrip(BLANKS)


class OutputParser:
    """Takes a turn apart while it is written (model specification, section 16, items 5 to 8).

    All text arrives in the end exactly once, in one of three places, and where it lands does not depend on how it was
    cut into pieces. Left out are only the tags of think blocks and calls, and the white space around them.

    Attributes:
        calls: Number of complete calls so far.
        reasoning_open: After `finish`: the turn ended inside the think block.
        unfinished_call: After `finish`: the output ended inside a call.
        tools: Whether any were declared.
        thinking: Whether the turn began inside an open think block.
    """

    def __init__(self, tools: Sequence[Mapping[str, Any]] | None = None, *, thinking: bool) -> None:
        """Start a turn.

        Args:
            tools: Declared tools. Without any, and for names that are not declared, a call stays text.
            thinking: Whether the prompt ended inside an open think block (`Prompt.inside_thinking`).

        Raises:
            TextError: A tool has the wrong shape.
        """
        self.calls = 0
        self.reasoning_open = False
        self.unfinished_call = False
        self._tools = read_tools(tools)
        self.tools = bool(self._tools)
        self.thinking = thinking
        self._lexer = Lexer()
        self._reasoning = thinking
        self._leading = True  # nothing but white space so far in this part of the turn
        self._trim: Callable[[str], str] = _blanks if thinking else _nothing  # of leading white space
        self._white: list[str] = []  # white space that may be the last
        self._opening: list[Lexeme] = []  # what may become the beginning of a call
        self._call: CallReader | None = None
        self._started = 0
        self._certain = False
        self._out: list[Delta] = []

    @property
    def reasoning(self) -> bool:
        """Whether what comes next belongs to a think block, as far as is known."""
        return self._reasoning

    def push(self, text: str) -> list[Delta]:
        """Take more of the output.

        Returns:
            What became certain, in order. Text waits only while it may be part of a tag, or white space before one.
        """
        for lexeme in self._lexer.push(text):
            self._feed(lexeme)
        return self._report()

    def finish(self, *, cut: bool = False) -> list[Delta]:
        """The turn is over.

        Args:
            cut: Whether it was cut off (token limit, cancelled) rather than ended by the model. A call whose last
                closing tag is missing counts as complete only if the model itself stopped there.
        """
        if self._opening and cut:
            self.unfinished_call = True
            return self._report()
        for lexeme in self._lexer.finish():
            self._feed(lexeme)
        while self._call is not None:
            self._out += self._call.finish(cut=cut)
            if self._call.rest is None:
                self.unfinished_call = True
                return self._report()
            # What waited behind the call holds no further end of it, so the first end of each later call counts.
            self._certain = True
            self._after_call(self._call.rest)
        if self._opening and cut:
            self.unfinished_call = True
            return self._report()
        if self._opening:
            self._give_up_opening()
        self.reasoning_open = self._reasoning
        if not self._reasoning:
            text = "".join(self._white)
            self._put(self._trim(text) if self._leading else text)
        self._white.clear()
        return self._report()

    def _report(self) -> list[Delta]:
        deltas, self._out = self._out, []
        return merged(deltas)

    def _feed(self, lexeme: Lexeme) -> None:
        if self._call is not None:
            self._out += self._call.feed(lexeme)
            if self._call.rest is not None:
                self._after_call(self._call.rest)
        elif self._opening:
            self._open(lexeme)
        elif lexeme.tag == "tool_call" and self._tools:
            self._opening = [lexeme]
        else:
            self._text(lexeme)

    def _open(self, lexeme: Lexeme) -> None:
        """Go on with ``<tool_call>``, ``<function=NAME>`` and a first tag inside; anything else was text."""
        self._opening.append(lexeme)
        if lexeme.blank:
            return
        tags = [held for held in self._opening if held.tag]
        if len(tags) == 2 and lexeme.tag == "function" and lexeme.name in self._tools:
            return
        if len(tags) == 3 and lexeme.tag in {"parameter", "/function"}:
            self._start_call(tags[1].name, lexeme)
        else:
            self._give_up_opening()

    def _give_up_opening(self) -> None:
        first, *others = self._opening
        self._opening = []
        self._text(first)
        for lexeme in others:
            self._feed(lexeme)

    def _start_call(self, name: str, first: Lexeme) -> None:
        self._opening = []
        self._white.clear()
        self._reasoning = False  # a call inside an open think block ends it
        self._out.append(ToolCallStart(self._started, name))
        self._call = CallReader(self._tools[name], self._started, frozenset(self._tools), certain=self._certain)
        self._started += 1
        self._out += self._call.feed(first)

    def _after_call(self, rest: list[Lexeme]) -> None:
        self._call = None
        self.calls += 1
        self._leading, self._trim = True, _blanks
        for lexeme in rest:
            self._feed(lexeme)

    def _text(self, lexeme: Lexeme) -> None:
        """Text of the current part, or a tag that opens or closes a think block."""
        if self._reasoning and lexeme.tag == "/think":
            self._turn_to(reasoning=False)
        elif self._leading and lexeme.tag == "think":  # also a repeated opener at the beginning of a block
            self._turn_to(reasoning=True)
        elif self._leading and lexeme.tag == "/think":  # a stray closer before the answer
            self._turn_to(reasoning=False)
        else:
            self._flow(lexeme.text)

    def _turn_to(self, *, reasoning: bool) -> None:
        self._white.clear()
        self._reasoning = reasoning
        self._leading, self._trim = True, _blanks if reasoning else _newlines

    def _flow(self, text: str) -> None:
        solid = text.rstrip(BLANKS)
        if solid:
            whole = "".join(self._white) + solid
            self._put(self._trim(whole) if self._leading else whole)
            self._white.clear()
            self._leading = False
        if len(solid) < len(text):
            self._white.append(text[len(solid) :])

    def _put(self, text: str) -> None:
        if text:
            self._out.append(Reasoning(text) if self._reasoning else Content(text))
