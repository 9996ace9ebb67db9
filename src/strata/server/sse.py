"""Server-sent events."""

from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
    "connection": "keep-alive",
}
"""Of a stream: nobody on its way may keep it, pack it, or wait for more of it."""


def data(value: dict[str, Any] | msgspec.Struct) -> bytes:
    """An event without a name."""
    return b"data: " + _encode(value) + b"\n\n"


def event(name: str, value: dict[str, Any]) -> bytes:
    """An event with a name."""
    return b"event: " + name.encode() + b"\n" + data(value)


def comment(text: str) -> bytes:
    """A line that every reader skips."""
    return b": " + text.encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"
"""The last event of OpenAI's streams."""
