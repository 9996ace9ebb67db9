"""Routes of the page. They need no key: the files are the same for everybody and hold nothing of anybody."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from strata.server.errors import ApiError
from strata.server.web.files import File, read_files

_RULES = (
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "img-src 'self'",
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types dompurify",
)
POLICY = "; ".join(_RULES)
"""Nothing runs, shows or is asked for but what this server gave as a file; only the sanitizer turns text into HTML."""

HEADERS = {
    "content-security-policy": POLICY,
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "cache-control": "no-cache",
}
"""Of every file; a browser may keep it but has to ask whether it is still the same."""

PATHS = ("/", "/static/{name:path}")
"""Routes that lead to files."""

_INDEX = "index.html"


class Page:
    """Answers with files from a table; what was asked for is only ever looked up in it.

    Attributes:
        paths: all paths that lead to a file.
    """

    def __init__(self, files: Mapping[str, File] | None = None) -> None:
        """Serve these files; without, those of the package."""
        files = read_files() if files is None else files
        self._files = {f"/static/{name}": file for name, file in files.items() if name != _INDEX}
        self._files["/"] = files[_INDEX]
        self.paths = frozenset(self._files)

    def give(self, request: Request) -> Response:
        """The file of a request's path.

        Raises:
            ApiError: there is none.
        """
        path: str = request.scope["path"]
        file = self._files.get(path)
        if file is None:
            raise ApiError(404, f"there is no file {path[:200]!r}")
        headers = {**HEADERS, "etag": file.etag}
        if _has(request.headers.get("if-none-match", ""), file.etag):
            return Response(status_code=304, headers=headers)
        return Response(file.body, headers={**headers, "content-type": file.type})


def _has(given: str, etag: str) -> bool:
    """Whether a browser has this version: its list of versions may hold weak ones, which are as good here."""
    return any(one.strip().removeprefix("W/") in {etag, "*"} for one in given.split(","))
