"""Counts calls written inside a text: example calls in a file that a call is about to write, say."""

from strata.text.output.lexer import Lexeme


class Nesting:
    """Openers ``<tool_call><function=...>`` against closers ``</function></tool_call>``, white space between allowed.

    Attributes:
        depth: Openers without a closer so far.
        run: Number of lexemes since and including the ``</parameter>`` that may have begun the end of a call; 0 if
            none has.
    """

    def __init__(self) -> None:
        self.depth = 0
        self.run = 0
        self._previous = ""  # the last tag, if only white space followed it

    def feed(self, lexeme: Lexeme) -> bool:
        """Take the next lexeme of the text.

        Returns:
            Whether it completes ``</parameter></function></tool_call>`` where no opener is left to close: the end of
            the call around the text, if it is one.
        """
        if self.run:
            self.run += 1
        if lexeme.blank:
            return False
        previous, self._previous = self._previous, lexeme.tag
        if lexeme.tag == "/parameter":
            self.run = 1
        elif (previous, lexeme.tag) not in {("/parameter", "/function"), ("/function", "/tool_call")}:
            self.run = 0
        if (previous, lexeme.tag) == ("tool_call", "function"):
            self.depth += 1
        elif (previous, lexeme.tag) == ("/function", "/tool_call"):
            if self.depth == 0:
                return self.run > 0
            self.depth -= 1
        return False
