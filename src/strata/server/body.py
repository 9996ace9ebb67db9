"""A request's body: read within limits, then decoded."""

import asyncio
import re
from typing import Any

import msgspec
import numpy as np
from starlette.requests import ClientDisconnect, Request

from strata.server.errors import ApiError, bad
from strata.server.options import Options

LARGE = 1 << 16
"""Bytes of a request from which on it is read in a thread."""

_LINGER = 5.0
"""Seconds for which a request that is too large is still taken, and thrown away."""

_CROWDED = ApiError(
    503, "too many bytes of requests are arriving; try again in a moment", code="too_many_bytes", retry=1
)

_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_OTHERS = bytes(set(range(256)) - set(b"[]{}"))
_STEP = np.zeros(256, np.int32)
_STEP[list(b"[{")] = 1
_STEP[list(b"]}")] = -1


async def read_object(request: Request, options: Options) -> dict[str, Any]:
    """The JSON object in a request.

    Raises:
        ApiError: it is too large, too deep, no JSON, no object, or did not arrive in time.
    """
    data = await _read(request, options)
    return await asyncio.to_thread(decode, data, options.depth) if len(data) > LARGE else decode(data, options.depth)


def _check(request: Request) -> None:
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise ApiError(415, f"content-encoding {encoding!r} is not supported; send the body as it is")


async def _read(request: Request, options: Options) -> bytes:
    _check(request)
    too_large = ApiError(413, f"the request has more than {options.body} bytes, the most that this server takes")
    length = request.headers.get("content-length", "0")
    parts: list[bytes] = []
    if length.isdecimal() and int(length) > options.body and "expect" in request.headers:
        raise too_large  # it asks before it sends
    taken = 0
    size, refused = 0, length.isdecimal() and int(length) > options.body
    try:
        async with asyncio.timeout(_LINGER if refused else options.reading):
            async for part in request.stream():
                size += len(part)
                refused = refused or size > options.body
                if size > 2 * options.body:
                    raise too_large
                if refused:
                    continue
                parts.append(part)
                taken += len(part)
                if not options.arriving.take(len(part)):
                    raise _CROWDED
    except TimeoutError:
        if refused:
            raise too_large from None
        raise ApiError(408, f"the request did not arrive within {options.reading:g} s") from None
    except ClientDisconnect:
        raise ApiError(400, "the client left before its request had arrived") from None
    finally:
        options.arriving.take(-taken)
    if refused:  # what came of it was taken, because a client that still sends does not read why it should not
        raise too_large
    return b"".join(parts)


def decode(data: bytes, depth: int) -> dict[str, Any]:
    """Decode JSON text that must be an object.

    Raises:
        ApiError: it is not; nothing of it is repeated.
    """
    data = data.removeprefix(b"\xef\xbb\xbf")  # which some systems write before every text
    if not data.strip():
        raise bad("the request has no body; it must be a JSON object")
    if deepest(data) > depth:
        raise bad(f"the JSON of the request has more than {depth} levels of nesting")
    try:
        value = _value(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as wrong:
        raise bad(f"the request is not valid JSON: {wrong}") from None
    if not isinstance(value, dict):
        name = {list: "a list", str: "a text", bool: "true or false", type(None): "null"}.get(type(value), "a number")
        raise bad(f"the request must be a JSON object, not {name}")
    return value


def _value(data: bytes) -> Any:
    """The value; half of a surrogate pair, which is left where a program has cut a text, is read as U+FFFD."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, ValueError):
        mended = _ESCAPES.sub(lambda found: b"\\ufffd" if found["half"] else found[0], data)
        if mended == data:
            raise
    return msgspec.json.decode(mended)


def deepest(data: bytes) -> int:
    """How many brackets are open at a time, found without parsing."""
    brackets = _STRINGS.sub(b"", data).translate(None, _OTHERS)
    steps = _STEP[np.frombuffer(brackets, np.uint8)]
    return int(np.cumsum(steps).max(initial=0))
