"""Errors in Anthropic's form."""

from typing import Any

from strata.server.errors import ApiError


def error_body(error: ApiError, request: str = "") -> dict[str, Any]:
    """An error; `request` is the request's name."""
    return {"type": "error", "error": {"type": error.type, "message": str(error)}, "request_id": request or None}
