"""Messages as callers write them, brought to the one form that templates are written for."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from strata.errors import TextError
from strata.text.chat.client_lines import without_client_line

_ROLE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")

KNOWN_ROLES = ("system", "user", "assistant", "tool")
"""Roles that every template renders; another role is passed on, for the template to accept or refuse."""


def normalise_messages(messages: object) -> list[dict[str, Any]]:
    """Check a conversation and write it in one form.

    Content becomes a string (parts are joined without anything between), arguments of calls become objects, and keys
    that no template reads are left out. ``developer`` is another name for ``system``. A line that a client wrote at the
    head of a system message for its service is dropped (`client_lines`).

    Raises:
        TextError: A message has the wrong shape; the text says which and where.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        raise TextError(f"messages is a {type(messages).__name__}; expected a list of messages.")
    if not messages:
        raise TextError("messages is empty; expected at least one user message.")
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def _message(message: object, where: str) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise TextError(f"{where} is a {type(message).__name__}; expected an object with role and content.")
    role = message.get("role")
    if not isinstance(role, str) or not _ROLE.fullmatch(role):
        raise TextError(f"{where}.role is {role!r}; expected one of {', '.join(KNOWN_ROLES)}.")
    if role == "developer":
        role = "system"
    content = message.get("content")
    if content is None and role in {"system", "user"}:
        raise TextError(f"{where}.content is missing; a {role} message needs text.")
    normal: dict[str, Any] = {"role": role, "content": _text(content, role, f"{where}.content")}
    for key in ("reasoning_content", "name", "tool_call_id"):
        value = message.get(key)
        if value is None:
            continue
        if not isinstance(value, str):
            raise TextError(f"{where}.{key} is a {type(value).__name__}; expected a string.")
        normal[key] = value
    calls = message.get("tool_calls")
    if calls:
        if role != "assistant":
            raise TextError(f"{where}.tool_calls: only an assistant message can have calls.")
        normal["tool_calls"] = _calls(calls, f"{where}.tool_calls")
    return normal


def _text(content: object, role: str, where: str) -> str:
    first, *rest = _parts(content, where) or [""]
    return "".join((without_client_line(first) if role == "system" else first, *rest))


def _parts(content: object, where: str) -> list[str]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content]
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise TextError(f"{where} is a {type(content).__name__}; expected a string or a list of parts.")
    return [_part(part, f"{where}[{place}]") for place, part in enumerate(content)]


def _part(part: object, where: str) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise TextError(f"{where} is a {type(part).__name__}; expected a part with type and text.")
    kind = part.get("type")
    if kind != "text":
        raise TextError(f'{where}.type is {kind!r}; only parts of type "text" can be read.')
    text = part.get("text")
    if not isinstance(text, str):
        raise TextError(f"{where}.text is a {type(text).__name__}; expected a string.")
    return text


def _calls(calls: object, where: str) -> list[dict[str, Any]]:
    if isinstance(calls, str | bytes) or not isinstance(calls, Sequence):
        raise TextError(f"{where} is a {type(calls).__name__}; expected a list of calls.")
    return [_call(call, f"{where}[{place}]") for place, call in enumerate(calls)]


def _call(call: object, where: str) -> dict[str, Any]:
    if not isinstance(call, Mapping):
        raise TextError(f"{where} is a {type(call).__name__}; expected an object.")
    function = call.get("function", call)
    custom = call.get("custom")
    if isinstance(custom, Mapping):  # a tool that takes a plain text, which the model knows as its one parameter
        function = {"name": custom.get("name"), "arguments": {"input": custom.get("input") or ""}}
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise TextError(f"{where} has no function with a name.")
    normal = {"name": function["name"], "arguments": _arguments(function.get("arguments"), f"{where}.arguments")}
    identity = {"id": call["id"]} if isinstance(call.get("id"), str) else {}
    return {**identity, "type": "function", "function": normal}


def _arguments(arguments: object, where: str) -> dict[str, Any]:
    """Arguments of a past call as an object.

    Clients send them as an object, as its JSON text, or encoded twice; all three are the same call. Text that is no
    JSON object (a call that was cut short) is kept, as the value of one parameter called ``arguments``: a model's own
    mistake in the history must not make a conversation unusable.
    """
    value = arguments
    for _ in range(2):
        if isinstance(value, str) and value.strip():
            try:
                value = json.loads(value)
            except (ValueError, RecursionError):
                break
    if value is None or (isinstance(value, str) and not value.strip()):
        return {}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(arguments, str):
        return {"arguments": arguments}
    raise TextError(f"{where} is a {type(arguments).__name__}; expected an object or its JSON text.")
