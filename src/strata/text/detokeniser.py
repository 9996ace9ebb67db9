"""Tokens to text while they arrive."""

import codecs
from collections.abc import Callable


class Detokeniser:
    """Turns a stream of tokens into text without ever cutting a character.

    The pieces together equal the one-shot decoding of all bytes with errors replaced. At most three bytes wait for
    the rest of their character, so a token costs the same however long the text has become.
    """

    def __init__(self, bytes_of: Callable[[int], bytes]) -> None:
        """Start an empty text.

        Args:
            bytes_of: The bytes of a token.
        """
        self._bytes_of = bytes_of
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """The text that became complete with this token; often empty."""
        return self.push_bytes(self._bytes_of(token))

    def push_bytes(self, data: bytes) -> str:
        """The text that became complete with these bytes, of a token that somebody else has looked up."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """U+FFFD if bytes of an unfinished character are left, else nothing. The next `push` starts a new text."""
        rest = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return rest
