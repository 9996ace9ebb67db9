"""Tools as callers declare them."""

from collections.abc import Mapping, Sequence
from typing import Any

from strata.errors import TextError


def normalise_tools(tools: object) -> list[dict[str, Any]]:
    """Check declared tools; a bare function is wrapped as ``{"type": "function", "function": {...}}``.

    Raises:
        TextError: A tool has the wrong shape; the text says which and where.
    """
    if tools is None:
        return []
    if isinstance(tools, str | bytes) or not isinstance(tools, Sequence):
        raise TextError(f"tools is a {type(tools).__name__}; expected a list of tools.")
    return [_tool(tool, f"tools[{place}]") for place, tool in enumerate(tools)]


def _tool(tool: object, where: str) -> dict[str, Any]:
    if not isinstance(tool, Mapping):
        raise TextError(f"{where} is a {type(tool).__name__}; expected an object.")
    wrapped = dict(tool) if "function" in tool else {"type": "function", "function": dict(tool)}
    function = wrapped["function"]
    if not isinstance(function, Mapping):
        raise TextError(f"{where}.function is a {type(function).__name__}; expected an object.")
    name = function.get("name")
    if not isinstance(name, str) or not name:
        raise TextError(f"{where}.function.name is {name!r}; expected a name.")
    schema = function.get("parameters")
    if schema is not None and not isinstance(schema, Mapping):
        raise TextError(f"{where}.function.parameters is a {type(schema).__name__}; expected a JSON schema.")
    return wrapped
