"""What answers the routes below /v1/strata."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from strata.errors import StrataError
from strata.server.desk import Desk
from strata.server.errors import ApiError, bad
from strata.server.monitor.feed import Feed
from strata.server.replying import json_response

WINDOWS = 256
"""Windows of a trace where a request does not say how many."""

MOST_WINDOWS = 4096
"""As many as an engine remembers."""

_SECONDS = 10.0
"""Seconds that an engine may take to hand its trace out; it does so between two windows or passes."""


async def status(_request: Request, desk: Desk) -> Response:
    """Numbers of this moment: speeds, requests, what is kept, memory; not a word of any text."""
    return json_response(await desk.monitor.snapshot(), headers={"cache-control": "no-store"})


async def events(request: Request, desk: Desk) -> Response:
    """The same twice a second, as server-sent events."""
    most = _whole(request, "snapshots", None, 1_000_000)
    desk.monitor.listeners.admit()
    return Feed(desk.monitor.listeners.listen(), most)


async def trace(request: Request, desk: Desk) -> Response:
    """The last windows in the trace format of Chrome and Perfetto."""
    windows = _whole(request, "windows", WINDOWS, MOST_WINDOWS)
    served = await desk.model(request, request.query_params.get("model"))
    desk.demand(served)
    asked = served.client.ask_trace(windows)
    try:
        async with asyncio.timeout(_SECONDS):
            told = await asyncio.wrap_future(asked)
    except TimeoutError:
        text = f"the engine did not come to the end of its work within {_SECONDS:g} s"
        raise ApiError(503, text, code="busy", retry=5) from None
    except StrataError as error:
        raise ApiError(503, f"there is no trace now: {error}", code="not_ready", retry=1) from error
    return Response(told.json, headers={"cache-control": "no-store"}, media_type="application/json")


def _whole(request: Request, name: str, without: int | None, most: int) -> int | None:
    """A whole number from 1 on in the query."""
    given = request.query_params.getlist(name)
    if not given:
        return without
    text = given[-1]
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise bad(f"{name} must be a whole number from 1 to {most}, not {text[:40]!r}", name)
    return int(text)
