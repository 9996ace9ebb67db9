"""Who may use the server: keys, or without any the names and pages that are ours."""

import hashlib
import hmac
import ipaddress
import re
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from strata.server.errors import ApiError
from strata.server.options import Options

OPEN = frozenset({"/health", "/live"})
"""Paths that need no key: they tell nothing but whether the server is there."""

_HOST = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<name>[0-9A-Za-z_.-]+))(?::(?P<port>[0-9]{0,5}))?")
_HEADER = re.compile(r"[0-9A-Za-z!#$%&'*+.^_`|~-]{1,100}")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Access:
    """Stands before all routes.

    With keys, a request needs one, whatever route and method; names do not matter, because no web page knows a key.
    Without, the Host header must be a name of ours, so that no page can come back under its own name, and the page a
    browser asks for must be one of ours.
    """

    def __init__(
        self, app: ASGIApp, options: Options, refuse: Callable[[Scope, ApiError], Response], files: AbstractSet[str]
    ) -> None:
        """Stand before an application.

        Args:
            app: the application.
            options: keys, names and pages.
            refuse: makes the answer to a request that may not pass.
            files: paths of the page's files, which anybody may get: they are the same for all.
        """
        self._app = app
        self._refuse = refuse
        self._options = options
        self._files = files
        self._keys = [(name, _digest(form)) for name, key in options.keys.items() for form in _forms(key)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        allowed = self._origin(headers.get("origin"))
        try:
            _one(headers, "host")
            if self._keys:
                preflight = scope["method"] == "OPTIONS" and allowed is not None
                if not preflight and not self._open(scope):
                    scope.setdefault("state", {})["client"] = self._named(headers)
            else:
                self._check_host(headers.get("host"), scope)
                self._check_page(headers, scope, allowed)
        except ApiError as error:
            await self._refuse(scope, error)(scope, receive, send if allowed is None else _shared(send, allowed))
            return
        if allowed is not None and scope["method"] == "OPTIONS" and "access-control-request-method" in headers:
            await _preflight(allowed, headers.get("access-control-request-headers", ""))(scope, receive, send)
            return
        await self._app(scope, receive, send if allowed is None else _shared(send, allowed))

    def _open(self, scope: Scope) -> bool:
        """Whether no key is needed."""
        return scope["path"] in OPEN or (scope["method"] in {"GET", "HEAD"} and scope["path"] in self._files)

    def _named(self, headers: Headers) -> str:
        """The name of the key that a request has; all keys are compared, in constant time."""
        given: list[bytes] = []
        for raw in headers.getlist("authorization"):
            scheme, _, value = raw.strip().partition(" ")
            if scheme.lower() == "bearer":
                given.append(value.strip().encode("latin-1"))
        given += [raw.strip().encode("latin-1") for raw in headers.getlist("x-api-key")]
        found = ""
        for one in given:
            digest = _digest(one)
            for name, key in self._keys:
                if hmac.compare_digest(digest, key):
                    found = name
        if not found:
            raise ApiError(
                401,
                "a valid key is needed: Authorization: Bearer KEY, or x-api-key: KEY",
                code="invalid_api_key",
            )
        return found

    def _check_host(self, host: str | None, scope: Scope) -> None:
        if host is None:
            if scope.get("http_version") == "1.0":
                return  # no browser; nothing to be led astray by a name
            raise ApiError(400, "the request has no Host header")
        name = _hostname(host)
        ours = {*_LOOPBACK, self._options.host.lower(), *(given.lower() for given in self._options.hosts)}
        if name in ours or (not self._options.loopback and _is_address(name)):
            return
        raise ApiError(
            403,
            f"the Host header {host[:100]!r} is no name of this server; allow_host adds names, and with a key all are "
            "allowed",
        )

    def _check_page(self, headers: Headers, scope: Scope, allowed: str | None) -> None:
        origin = headers.get("origin")
        if origin is None:
            site, mode = headers.get("sec-fetch-site", "none"), headers.get("sec-fetch-mode", "")
            visit = scope["method"] == "GET" and mode == "navigate"
            if site in {"none", "same-origin"} or visit:
                return
            raise ApiError(403, "a web page of another site may not use this server; allow_origin names those that may")
        same = origin.lower().partition("://")[2] == (headers.get("host") or "").lower()
        if not same and allowed is None:
            raise ApiError(
                403, f"a web page of {origin[:100]!r} may not use this server; allow_origin names those that may"
            )

    def _origin(self, origin: str | None) -> str | None:
        """The origin to allow, if it is one that the options name."""
        if origin is not None and (origin.lower() in self._options.origins or "*" in self._options.origins):
            return origin
        return None


def _forms(key: str) -> set[bytes]:
    """A key as clients write it in a header: letters beyond ASCII are UTF-8, or what browsers have for them."""
    try:
        return {key.encode(), key.encode("latin-1")}
    except UnicodeEncodeError:
        return {key.encode()}


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _one(headers: Headers, name: str) -> None:
    if len(headers.getlist(name)) > 1:
        raise ApiError(400, f"the request has several {name.title()} headers")


def _hostname(host: str) -> str:
    """The name in a Host header, without port, brackets and a last dot; empty if it is no name."""
    found = _HOST.fullmatch(host)
    if found is None or int(found["port"] or 0) > 65535:
        return ""
    return (found["six"] or found["name"]).lower().removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _preflight(origin: str, asked: str) -> Response:
    """What a page may send; the names of headers that it asks for are as good as any, for it is trusted by now."""
    names = [name for name in map(str.strip, asked.split(",")) if _HEADER.fullmatch(name)]
    headers = {
        "access-control-allow-origin": origin,
        "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
        "access-control-allow-headers": ", ".join(names) or "authorization, content-type, x-api-key",
        "access-control-max-age": "600",
        "vary": "Origin",
    }
    return Response(status_code=204, headers=headers)


def _shared(send: Send, origin: str) -> Send:
    """A sender whose answers a page of this origin may read."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = "x-request-id, request-id, retry-after"
            headers.append("vary", "Origin")
        await send(message)

    return sending


def warnings(options: Options) -> Iterable[str]:
    """What an operator should hear at the start."""
    if not options.loopback and not options.keys:
        yield f"everybody who reaches {options.host} may use this server; --api-key or --api-key-file demands a key"
