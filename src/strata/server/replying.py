"""From a prepared request to an HTTP answer, in one piece or as a stream."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from strata.server import sse
from strata.server.errors import ApiError, of
from strata.server.run import News, Run
from strata.server.writing import Writer

PATIENCE = 0.5
"""Seconds that a stream waits for its first news before it begins: a refusal that comes sooner has its own status."""

OnEnd = Callable[[Run], None]


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON."""
    return Response(msgspec.json.encode(value), status, headers, "application/json")


async def gone(receive: Receive) -> None:
    """Wait until the client has gone."""
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            return


async def while_there(receive: Receive, work: Awaitable[None]) -> bool:
    """Do some work unless the client leaves, which cancels it; returns whether it is done."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            return False
        working.result()
        return True
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def whole(run: Run, writer: Writer, receive: Receive, on_end: OnEnd) -> Response:
    """The answer in one piece.

    Raises:
        ApiError: the request failed.
    """

    async def work() -> None:
        async with run:
            await run.prepared()
            while not run.over:
                news = await run.next(3600)
                if news is not None:
                    writer.note(*news)

    try:
        done = await while_there(receive, work())
    except Exception as error:
        run.outcome, run.error = "error", of(error)
        raise
    finally:
        on_end(run)
    return json_response(writer.whole(run)) if done else Response(status_code=499)


class Stream(Response):
    """The answer as server-sent events, from the first news on."""

    def __init__(self, run: Run, writer: Writer, first: News | None, sign: float, on_end: OnEnd) -> None:
        super().__init__(None, headers=sse.HEADERS)
        self._told = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        self._run, self._writer, self._first, self._sign, self._on_end = run, writer, first, sign, on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send it, for as long as the client is there."""

        async def work() -> None:
            self._run.begun = True
            await send({"type": "http.response.start", "status": 200, "headers": self._told})
            async with contextlib.aclosing(self._chunks()) as chunks:
                async for chunk in chunks:
                    if chunk:
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            with contextlib.suppress(OSError):  # the client went while something was sent
                await while_there(receive, work())
        finally:
            await self._run.__aexit__(None, None, None)
            self._on_end(self._run)

    async def _chunks(self) -> AsyncGenerator[bytes]:
        run, writer = self._run, self._writer
        try:
            while not await run.prepared(self._sign):
                yield sse.comment("waiting for the model")
            yield writer.begin(run)
            if self._first is not None:
                yield writer.more(*self._first)
            sent = time.monotonic()
            while not run.over:
                news = await run.next(max(0.0, sent + self._sign - time.monotonic()))
                chunk = b"" if news is None else writer.more(*news)
                now = time.monotonic()
                if not chunk and now >= sent + self._sign:  # news that nobody is told are none
                    chunk = writer.sign(run)
                if chunk:
                    sent = now
                    yield chunk
            yield writer.end(run)
        except ApiError as error:
            yield writer.failed(run, error)
        except Exception as error:  # noqa: BLE001  # a stream has no other place to say it
            run.outcome, run.error = "error", of(error)
            yield writer.failed(run, of(error))


async def stream(run: Run, writer: Writer, sign: float, on_end: OnEnd) -> Response:
    """The answer as a stream, begun once there is news or patience is at an end.

    It is prepared before, however long that takes, so that refusals have their own status; but for a request that waits
    for its model to be loaded.

    Raises:
        ApiError: the request failed before it began.
    """
    await run.__aenter__()
    try:
        while not await run.prepared(PATIENCE) and not run.waiting:
            pass
        first = await run.next(PATIENCE) if run.answers else None
    except BaseException:
        await run.__aexit__(None, None, None)
        on_end(run)
        raise
    return Stream(run, writer, first, sign, on_end)
