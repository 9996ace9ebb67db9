"""The document: every route of the table, with what goes in and comes out."""

import re
from collections.abc import Sequence
from typing import Any

import strata
from strata.server.openapi import requests, watching
from strata.server.openapi.parts import ANY, Schema, record

_ERROR = record(
    {"error": record({"message": {"type": "string"}, "type": {"type": "string"}}, ["message", "type"], closed=False)},
    ["error"],
    closed=False,
    null=False,
)
_REQUESTS = {
    "/v1/chat/completions": "ChatRequest",
    "/v1/completions": "CompletionRequest",
    "/v1/responses": "ResponseRequest",
    "/v1/responses/input_tokens": "ResponseRequest",
    "/v1/messages": "MessageRequest",
    "/v1/messages/count_tokens": "MessageRequest",
    "/v1/models/load": "LoadRequest",
    "/v1/models/unload": "LoadRequest",
    "/tokenize": "TokenizeRequest",
    "/detokenize": "DetokenizeRequest",
    "/v1/strata/vram": "VramRequest",
}
_STREAMS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
_ANSWERS: dict[str, Sequence[str]] = {
    "/v1/chat/completions": ("id", "object", "created", "model", "choices", "usage"),
    "/v1/completions": ("id", "object", "created", "model", "choices", "usage"),
    "/v1/responses": ("id", "object", "created_at", "model", "status", "output", "usage"),
    "/v1/messages": ("id", "type", "role", "model", "content", "stop_reason", "stop_sequence", "usage"),
    "/v1/messages/count_tokens": ("input_tokens",),
    "/v1/responses/input_tokens": ("object", "input_tokens"),
    "/v1/models": ("object", "data"),
    "/v1/models/load": ("success", "model", "status"),
    "/v1/models/unload": ("success", "model", "status"),
    "/tokenize": ("tokens", "count"),
    "/detokenize": ("content",),
    "/v1/strata/vram": ("model", "vram", "placed", "slots", "experts", "slot_bytes"),
    "/health": ("status",),
    "/live": ("status",),
}
_OPEN = ("/health", "/live")


def document(routes: Sequence[tuple[str, str, str]], *, keyed: bool) -> dict[str, Any]:
    """The whole document.

    Args:
        routes: method, path and one sentence of each.
        keyed: whether a key is needed.
    """
    paths: dict[str, dict[str, Any]] = {}
    for method, path, meaning in routes:
        plain = re.sub(r":path}", "}", path)
        paths.setdefault(plain, {})[method.lower()] = _operation(method, plain, meaning, keyed=keyed)
    schemas = {
        "Error": _ERROR,
        "ChatRequest": requests.chat(),
        "CompletionRequest": requests.completion(),
        "ResponseRequest": requests.response(),
        "MessageRequest": requests.message(),
        "LoadRequest": requests.load(),
        "TokenizeRequest": requests.tokenize(),
        "DetokenizeRequest": requests.detokenize(),
        "VramRequest": requests.vram(),
        **watching.schemas(),
    }
    keys = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Strata", "version": strata.__version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {"schemas": schemas, **({"securitySchemes": keys} if keyed else {})},
    }


def _operation(method: str, path: str, meaning: str, *, keyed: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "summary": meaning,
        "operationId": f"{method.lower()} {path}",
        "responses": {"200": _answer(path), "default": _failure()},
    }
    if path == "/health":
        told["responses"]["503"] = _answer(path)
    if method == "POST":
        schema = {"$ref": f"#/components/schemas/{_REQUESTS[path]}"}
        told["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if path in watching.PARAMETERS:
        told["parameters"] = watching.PARAMETERS[path]
    if "{name}" in path:
        told["parameters"] = [{"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}]
    if keyed and path not in _OPEN:
        told["security"] = [{"bearer": []}, {"x-api-key": []}]
    return told


def _answer(path: str) -> dict[str, Any]:
    if path == "/metrics":
        return {"description": "numbers", "content": {"text/plain": {"schema": {"type": "string"}}}}
    if path in watching.ANSWERS:
        return {"description": "the answer", "content": watching.ANSWERS[path]}
    names = _ANSWERS.get(path, ())
    schema: Schema = (
        {"type": "array"} if path == "/slots" else record(dict.fromkeys(names, ANY), names, closed=False, null=False)
    )
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if path in _STREAMS:
        content["text/event-stream"] = {"schema": ANY}
    return {"description": "the answer", "content": content}


def _failure() -> dict[str, Any]:
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": "an error in the form of the route's dialect", "content": content}
