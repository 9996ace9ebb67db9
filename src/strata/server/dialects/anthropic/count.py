"""The answer of /v1/messages/count_tokens."""

from typing import Any

from strata.server.dialects.anthropic.request import read_message
from strata.server.options import Options
from strata.server.rendering import counted
from strata.server.served import Served


def count(body: dict[str, Any], served: Served, options: Options) -> dict[str, Any]:
    """How many tokens the prompt of a request has: those of the prompt itself, made in the same way."""
    return {"input_tokens": counted(served, read_message(body, options, ""), options)}
