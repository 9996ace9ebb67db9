"""Thoughts as an opaque text that a client keeps and sends back: Anthropic's signature, OpenAI's encrypted content.

It is no secret and no proof: it is the thought itself, packed, so that a conversation goes on with the same tokens even
where the client was told not to show it. What comes back is the client's own text in any case.
"""

import base64
import binascii
import hashlib
import zlib

from strata.server.errors import bad

_PACKED, _MARK = "strata1.", "strata0."
MOST = 4 << 20
"""Bytes that all thoughts of a request may have when they are unpacked."""


def seal(thought: str) -> str:
    """The whole thought, packed."""
    return _PACKED + base64.urlsafe_b64encode(zlib.compress(thought.encode())).decode()


def mark(thought: str) -> str:
    """A short sign for a thought whose text goes beside it."""
    return _MARK + hashlib.blake2b(thought.encode(), digest_size=24).hexdigest()


class Unsealer:
    """Unpacks the thoughts of one request, and no more than it may have: a little that is packed may be much."""

    def __init__(self, most: int = MOST) -> None:
        self._most = self._left = most

    def unseal(self, text: object) -> str | None:
        """The thought in a sealed text; None if it is a mark, somebody else's, or broken.

        Raises:
            ApiError: there is more than a request may have.
        """
        if not isinstance(text, str) or not text.startswith(_PACKED):
            return None
        try:
            packed = zlib.decompressobj()
            unpacked = packed.decompress(base64.urlsafe_b64decode(text[len(_PACKED) :]), self._left + 1)
        except (binascii.Error, zlib.error, ValueError):
            return None
        self._left -= len(unpacked)
        if self._left < 0:
            raise bad(f"the sealed thoughts of the request have more than {self._most} bytes; leave some of them out")
        try:
            return unpacked.decode()
        except UnicodeDecodeError:
            return None
