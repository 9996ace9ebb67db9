"""How a request fails, whatever dialect it came in."""

from strata.errors import QueueFullError, RequestError, StrataError, TextError
from strata.worker import EngineError, Kind
from strata.worker.errors import Nothing

_STATUS = {
    Kind.BAD_REQUEST: 400,
    Kind.QUEUE_FULL: 429,
    Kind.FAILED: 500,
    Kind.SLOW_READER: 500,
    Kind.ENGINE_DIED: 500,
    Kind.ENGINE_HUNG: 504,
    Kind.OUT_OF_MEMORY: 503,
    Kind.NOT_READY: 503,
    Kind.PROTOCOL: 500,
    Kind.SHUTDOWN: 503,
}

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    501: "not_implemented_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""What an error is called by its status; others are `api_error`."""


class ApiError(StrataError):
    """A request that gets an error for an answer.

    Attributes:
        status: of HTTP.
        param: the field it is about.
        code: a word for programs.
        retry: seconds after which asking again may help.
        kind: of the engine's failure.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry: int | None = None,
        kind: str = "",
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry = retry
        self.kind = kind

    @property
    def type(self) -> str:
        """What it is called."""
        return TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "api_error")


def bad(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """A request that makes no sense."""
    return ApiError(400, message, param=param, code=code)


def of(error: BaseException) -> ApiError:
    """Any error as what a client is told; what nobody expected is told without its text, which may hold a prompt."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, QueueFullError):
        return ApiError(429, str(error), code="queue_full", retry=1, kind=Kind.QUEUE_FULL)
    if isinstance(error, EngineError):
        status = _STATUS[error.kind]
        return ApiError(status, str(error), code=error.kind, retry=1 if status == 503 else None, kind=error.kind)
    if isinstance(error, RequestError | TextError | Nothing):
        return bad(str(error))
    if isinstance(error, StrataError):
        return ApiError(500, str(error), kind=Kind.FAILED)
    return ApiError(500, f"unexpected {type(error).__name__}; this is a bug in strata, and its log has the place")
