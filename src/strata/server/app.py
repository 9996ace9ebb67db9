"""The application: routes, access, and an error of the right form for everything that goes wrong."""

import logging
import secrets
import traceback
from collections.abc import Awaitable, Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Router
from starlette.routing import Route as Address
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strata.server.access import OPEN, Access
from strata.server.connection import FULL
from strata.server.desk import Desk
from strata.server.dialects.anthropic.errors import error_body as anthropic_body
from strata.server.dialects.openai.usage import error_body as openai_body
from strata.server.errors import ApiError, of
from strata.server.replying import json_response
from strata.server.routes import ROUTES, Handler
from strata.server.web.routes import PATHS, Page

_log = logging.getLogger("strata.server")


def create_app(desk: Desk) -> ASGIApp:
    """The whole application for one desk."""
    routes: list[BaseRoute] = []
    for route in ROUTES:
        endpoint = _endpoint(desk, route.handler)
        routes += [Address(path, endpoint, methods=[route.method]) for path in (route.path, *route.aliases)]
    page = Page()

    async def give(request: Request, _desk: Desk) -> Response:
        return page.give(request)

    routes += [Address(path, _endpoint(desk, give), methods=["GET"]) for path in PATHS]
    app = Router(routes, redirect_slashes=False)
    return _Outer(Access(_Found(app, routes), desk.options, refusal, page.paths), desk, routes)


def refusal(scope: Scope, error: ApiError) -> Response:
    """An error in the form of the dialect whose route was asked for."""
    name: str = scope.get("state", {}).get("request", "")
    body = anthropic_body(error, name) if scope["path"].startswith("/v1/messages") else openai_body(error)
    headers = {}
    if error.retry is not None:
        headers["retry-after"] = str(error.retry)
    if error.status in {408, 413} or error.code in {
        "two_lengths",
        "too_many_bytes",
    }:  # what is left of the request is not read
        headers["connection"] = "close"
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return json_response(body, error.status, headers)


def _endpoint(desk: Desk, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request, desk)
        except Exception as error:  # noqa: BLE001  # every error has an answer
            told = of(error)
            if told.status == 500 and told.kind == "":
                _unexpected(error)
            return refusal(request.scope, told)

    return answer


def _unexpected(error: BaseException) -> None:
    """A bug, for the log: where it was and what it is called, but nothing that a request said."""
    frames = traceback.extract_tb(error.__traceback__)[-6:]
    places = " < ".join(f"{frame.filename}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    _log.error("unexpected %s at %s", type(error).__name__, places)


class _Found:
    """Lets only what has a route and method through."""

    def __init__(self, app: ASGIApp, routes: list[BaseRoute]) -> None:
        self._app, self._routes = app, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            found = self._matching(scope)
            if all(match is not Match.FULL for _, match in found):
                known = bool(found)
                told = f"{scope['method'][:20]} is not what {scope['path'][:200]!r} takes"
                error = ApiError(405, told) if known else ApiError(404, f"there is no route {scope['path'][:200]!r}")
                answer = refusal(scope, error)
                if known:
                    methods = (getattr(route, "methods", None) or () for route, _ in found)
                    answer.headers["allow"] = ", ".join(sorted({method for some in methods for method in some}))
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _matching(self, scope: Scope) -> list[tuple[BaseRoute, Match]]:
        """Routes of this path; those that are it word for word are no names in others (`/v1/models/load`)."""
        every = ((route, route.matches(scope)[0]) for route in self._routes)
        found: list[tuple[BaseRoute, Match]] = [(route, match) for route, match in every if match is not Match.NONE]
        return [one for one in found if "{" not in getattr(one[0], "path", "")] or found


def _relative(scope: Scope) -> Scope:
    """A request whose target is a whole address, as one for a proxy is: that address has the name and the path."""
    scheme, found, rest = scope["path"].partition("://")
    if not found or scheme.lower() not in {"http", "https"}:
        return scope
    host, _, path = rest.partition("/")
    headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
    return {**scope, "path": f"/{path}", "headers": [(b"host", host.encode("utf-8")), *headers]}


def _two_lengths(scope: Scope) -> ApiError | None:
    """A body with two lengths: another program on the way may take the other one, and see two requests in one."""
    names = {name for name, _ in scope["headers"]}
    if b"transfer-encoding" not in names or (b"content-length" not in names and scope["http_version"] != "1.0"):
        return None
    text = "the request has a Transfer-Encoding beside a Content-Length or in HTTP/1.0; its length is not certain"
    return ApiError(400, text, code="two_lengths")


class _Outer:
    """A name for each request, one way of writing its path, and a count of its answer."""

    def __init__(self, app: ASGIApp, desk: Desk, routes: list[BaseRoute]) -> None:
        self._app, self._desk, self._routes = app, desk, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = f"req_{secrets.token_hex(12)}"
        scope = _relative(scope)
        path = scope["path"].rstrip("/") or "/"
        method = scope["method"][:20]
        spare = scope.get("state", {}).get("spare", False)
        scope = {**scope, "path": path, "state": {"request": name}}

        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = headers["request-id"] = name
                headers["x-content-type-options"] = "nosniff"
                if spare:
                    headers["connection"] = "close"
                route, status = self._route(scope), message["status"]
                self._desk.metrics.response(route, status, scope["state"].get("model", ""))
                if (
                    status >= 400 and route != "/health"
                ):  # without the words of the error, which may repeat some of the request
                    _log.info("%s %s %s: refused with %d", name, method, route, status)
            await send(message)

        try:
            if error := _two_lengths(scope):
                await refusal(scope, error)(scope, receive, sending)
                return
            if spare and path not in OPEN:
                await refusal(scope, FULL)(scope, receive, sending)
                return
            await self._app(scope, receive, sending)
        except Exception as error:  # noqa: BLE001  # the last line of defence
            _unexpected(error)
            if started:  # the connection has to break; what is raised here is logged, so it says nothing more
                raise RuntimeError("an answer broke off; the line before this one says where") from None
            await refusal(scope, of(error))(scope, receive, sending)

    def _route(self, scope: Scope) -> str:
        """The route's own path: what somebody made up must not become a label of a metric."""
        found = (route for route in self._routes if route.matches(scope)[0] is not Match.NONE)
        return getattr(next(found, None), "path", "none")
