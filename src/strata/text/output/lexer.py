"""Cuts a stream of text into tags and the text between them."""

import re
from dataclasses import dataclass

_LONGEST_NAME = 256

BLANKS = " \t\r\n\f\v"
"""White space that may stand around tags."""

_TAG = re.compile(
    r"<(?:(?P<fixed>/?think|/?tool_call|/function|/parameter)"
    rf"|(?P<kind>function|parameter)=(?P<name>[^<>\n]{{1,{_LONGEST_NAME}}}))>"
)
_FIXED = ("<think>", "</think>", "<tool_call>", "</tool_call>", "</function>", "</parameter>")
_NAMED = ("<function=", "<parameter=")
_NAMED_START = re.compile(rf"<(?:function|parameter)=[^<>\n]{{0,{_LONGEST_NAME}}}")


@dataclass(frozen=True)
class Lexeme:
    """A tag, or text without a tag in it.

    Attributes:
        text: The characters themselves.
        tag: ``think``, ``/think``, ``tool_call``, ``/tool_call``, ``function``, ``/function``, ``parameter`` or
            ``/parameter``; empty for text.
        name: What stands after ``=`` in a tag that has it.
    """

    text: str
    tag: str = ""
    name: str = ""

    @property
    def blank(self) -> bool:
        """Whether this is nothing but white space."""
        return not self.tag and not self.text.strip(BLANKS)


class Lexer:
    """Lexemes as soon as they are certain; only what may become a tag waits (at most one tag's length)."""

    def __init__(self) -> None:
        self._waiting = ""

    def push(self, text: str) -> list[Lexeme]:
        """The lexemes that became certain with this text. Where text is cut into lexemes depends on the pushes."""
        data = self._waiting + text
        lexemes: list[Lexeme] = []
        done = 0
        for found in _TAG.finditer(data):
            if found.start() > done:
                lexemes.append(Lexeme(data[done : found.start()]))
            lexemes.append(Lexeme(found[0], found["fixed"] or found["kind"], found["name"] or ""))
            done = found.end()
        last = data.rfind("<", done)
        certain = last if last >= 0 and _may_become_tag(data[last:]) else len(data)
        if certain > done:
            lexemes.append(Lexeme(data[done:certain]))
        self._waiting = data[certain:]
        return lexemes

    def finish(self) -> list[Lexeme]:
        """What is left, as text."""
        rest, self._waiting = self._waiting, ""
        return [Lexeme(rest)] if rest else []


def _may_become_tag(text: str) -> bool:
    """Whether more characters could make a tag of this text, which begins with its only ``<``."""
    if any(tag.startswith(text) for tag in (*_FIXED, *_NAMED)):
        return True
    return _NAMED_START.fullmatch(text) is not None
