"""Messages as frames on a socket: four bytes of length (big-endian), then msgpack."""

import socket
import struct
from collections.abc import Iterator
from typing import Generic, TypeVar

import msgspec

from strata.errors import RequestError
from strata.worker.errors import ProtocolError
from strata.worker.messages import Message, Order, Report, Submit

LARGEST = 64 << 20
"""Bytes of a frame; a prompt of a million tokens takes five million."""

_HEAD = struct.Struct(">I")
_CHUNK = 1 << 16

_encoder = msgspec.msgpack.Encoder()

T = TypeVar("T")


def encode(message: Message) -> bytes:
    """One frame.

    Raises:
        ProtocolError: the message is larger than a frame may be, or holds a value that msgpack has no form for.
    """
    try:
        body = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError) as error:
        raise ProtocolError(f"a message of type {type(message).__name__} cannot be sent: {error}") from error
    if len(body) > LARGEST:
        raise ProtocolError(
            f"a message of type {type(message).__name__} has {len(body)} bytes; a frame holds at most {LARGEST}"
        )
    return _HEAD.pack(len(body)) + body


_submit = msgspec.msgpack.Decoder(Submit)


def encode_request(request: Submit) -> bytes:
    """One frame, after making sure that the engine will understand it: what it cannot read would end it.

    Raises:
        RequestError: a field has a value of the wrong type, which it names, or one that no message can hold: an integer
            of more than 64 bits, text that is no valid Unicode, more than fits into a frame.
    """
    try:
        frame = encode(request)
        _submit.decode(memoryview(frame)[_HEAD.size :])
    except (ProtocolError, msgspec.ValidationError) as error:
        raise RequestError(f"the request cannot be sent: {error}") from error
    return frame


class Frames(Generic[T]):
    """Bytes in, messages out, whatever the pieces they come in."""

    def __init__(self, kind: type[T]) -> None:
        """Expect messages of a union of types."""
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._kept = bytearray()

    def push(self, data: bytes) -> Iterator[T]:
        """The messages that these bytes complete.

        Raises:
            ProtocolError: a frame is larger than allowed, or is no message; nothing that follows can be understood.
        """
        kept = self._kept
        kept += data
        while len(kept) >= _HEAD.size:
            (size,) = _HEAD.unpack_from(kept)
            if size > LARGEST:
                raise ProtocolError(f"a frame announces {size} bytes; at most {LARGEST} are allowed")
            end = _HEAD.size + size
            if len(kept) < end:
                return
            body = bytes(kept[_HEAD.size : end])
            del kept[:end]
            try:
                message = self._decoder.decode(body)
            except (msgspec.DecodeError, ValueError, RecursionError) as error:
                raise ProtocolError(f"a frame of {size} bytes is no message: {error}") from error
            yield message

    def end(self) -> None:
        """The stream has ended.

        Raises:
            ProtocolError: in the middle of a frame.
        """
        if self._kept:
            raise ProtocolError(f"the stream ended inside a frame, after {len(self._kept)} of its bytes")


def orders() -> "Frames[Order]":
    """What an engine's process reads."""
    return Frames(Order)  # type: ignore[arg-type]  # a union of types is one for msgspec


def reports() -> "Frames[Report]":
    """What its client reads."""
    return Frames(Report)  # type: ignore[arg-type]


def receive(link: socket.socket) -> bytes:
    """The next bytes; none at the end. A connection that the other side broke has ended too."""
    try:
        return link.recv(_CHUNK)
    except ConnectionError:
        return b""
