"""What loads and unloads a model by hand: `/v1/models/load` and `/v1/models/unload`, as llama.cpp's router has them."""

from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response

from strata.server.body import read_object
from strata.server.desk import Desk
from strata.server.dialects.native.health import model as described
from strata.server.fields import Fields
from strata.server.replying import json_response, while_there
from strata.server.served import Served


async def load(request: Request, desk: Desk) -> Response:
    """Have a model loaded, as a request for it would; `wait` answers when it is there."""
    served, wait = await _read(request, desk)
    return await _done(request, desk, served, desk.fleet.load(served, wait=wait))


async def unload(request: Request, desk: Desk) -> Response:
    """Let a model go as soon as its answers have ended; `wait` answers when it has gone."""
    served, wait = await _read(request, desk)
    return await _done(request, desk, served, desk.fleet.unload(served, wait=wait))


async def _read(request: Request, desk: Desk) -> tuple[Served, bool]:
    fields = Fields(await read_object(request, desk.options), strict=desk.options.strict)
    served, wait = desk.named(request, fields.any("model")), fields.flag("wait") or False
    fields.end()
    return served, wait


async def _done(request: Request, desk: Desk, served: Served, work: Awaitable[None]) -> Response:
    if not await while_there(request.receive, work):
        return Response(status_code=499)
    told = described(desk.fleet, served)
    return json_response({"success": True, "model": served.name, "status": told["status"]})
