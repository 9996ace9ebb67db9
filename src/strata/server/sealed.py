"""Thoughts as an opaque text that a client keeps and sends back: Anthropic's signature, OpenAI's encrypted content.

It is no secret and no proof: it is the thought itself, packed, so that a conversation goes on with the same tokens even
where the client was told not to show it. What comes back is the client's own text in any case.
"""

import base64
import binascii
import hashlib
import zlib

_PACKED, _MARK = "strata1.", "strata0."
MOST = 4 << 20
"""Characters that a thought may have when it is unpacked."""


def seal(thought: str) -> str:
    """The whole thought, packed."""
    return _PACKED + base64.urlsafe_b64encode(zlib.compress(thought.encode())).decode()


def mark(thought: str) -> str:
    """A short sign for a thought whose text goes beside it."""
    return _MARK + hashlib.blake2b(thought.encode(), digest_size=24).hexdigest()


def unseal(text: object) -> str | None:
    """The thought in a sealed text; None if it is a mark, somebody else's, or broken."""
    if not isinstance(text, str) or not text.startswith(_PACKED):
        return None
    try:
        unpacked = zlib.decompressobj().decompress(base64.urlsafe_b64decode(text[len(_PACKED) :]), MOST)
        return unpacked.decode()
    except (binascii.Error, zlib.error, ValueError):
        return None
