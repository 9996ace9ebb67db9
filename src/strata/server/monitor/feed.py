"""Events to one listener, as an HTTP answer."""

import contextlib
from collections.abc import AsyncGenerator

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from strata.server import sse
from strata.server.replying import while_there


class Feed(Response):
    """Server-sent events for as long as the listener is there and the server runs."""

    def __init__(self, events: AsyncGenerator[bytes], most: int | None) -> None:
        """Send events.

        Args:
            events: of this listener.
            most: how many it wants; None is all.
        """
        super().__init__(None, headers=sse.HEADERS)
        self._told = [(name, value) for name, value in self.raw_headers if name != b"content-length"]
        self._events, self._most = events, most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them; sending waits for the listener, and what it misses meanwhile it does not get."""

        async def work() -> None:
            await send({"type": "http.response.start", "status": 200, "headers": self._told})
            sent = 0
            async with contextlib.aclosing(self._events) as events:
                if scope["method"] != "HEAD":
                    async for event in events:
                        await send({"type": "http.response.body", "body": event, "more_body": True})
                        sent += 1
                        if sent == self._most:
                            break
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        with contextlib.suppress(OSError):  # the listener went while something was sent
            await while_there(receive, work())
