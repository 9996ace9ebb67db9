"""Requests in four dialects, and what has to be true of their answers."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
MOST = 48
"""Tokens of a raw continuation, which may have no end of its own."""


class Wrong(Exception):  # noqa: N818  # what is told about an answer
    """An answer is not what its dialect demands."""


class Refused(Exception):  # noqa: N818  # no error: it says to come back
    """The queue is full, said after the stream had begun."""


@dataclass
class Said:
    """An answer: its name and its text."""

    name: str
    text: str


def body(dialect: str, prompt: str, *, stream: bool, long: bool = False) -> dict[str, Any]:
    """A request. A `long` one asks a chat for what makes its answer many times as large."""
    if dialect == "completions":
        return {"prompt": prompt, "stream": stream, "temperature": 0, "max_tokens": MOST}
    if dialect == "responses":
        return {"input": prompt, "stream": stream, "temperature": 0, "enable_thinking": False}
    found = {"messages": [{"role": "user", "content": prompt}], "stream": stream, "temperature": 0}
    if dialect == "chat":
        found["enable_thinking"] = False
        if long:
            found |= {"logprobs": True, "top_logprobs": 10}
    return found


def events(raw: bytes) -> list[Any]:
    """The values of a stream's events; comments are left out."""
    text = raw.decode()
    if text and not text.endswith("\n\n"):
        raise Wrong(f"a stream ends in the middle of an event: {text[-60:]!r}")
    found: list[Any] = []
    for block in text.split("\n\n"):
        data = [line[6:] for line in block.split("\n") if line.startswith("data: ")]
        if data:
            found.append(data[0] if data[0] == "[DONE]" else json.loads(data[0]))
    return found


def _need(condition: object, text: str) -> None:
    if not condition:
        raise Wrong(text)


def _one_name(names: list[str]) -> str:
    _need(len(set(names)) == 1, f"a stream has the names {sorted(set(names))}")
    return names[0]


def _openai(values: list[Any], piece: Callable[[Any], str]) -> Said:
    _need(values and values[-1] == "[DONE]", "a stream without [DONE]")
    chunks = values[:-1]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    reasons = [choice["finish_reason"] for choice in choices if choice["finish_reason"]]
    _need(len(reasons) == 1, f"a stream with the reasons {reasons}")
    _need(choices[-1]["finish_reason"], "something comes behind the end")
    return Said(_one_name([chunk["id"] for chunk in chunks]), "".join(map(piece, choices)))


def _responses(values: list[Any]) -> Said:
    _need([v["sequence_number"] for v in values] == list(range(len(values))), "events are missing or out of order")
    _need(values[-1]["type"] == "response.completed", f"a stream ends with {values[-1]['type']}")
    text = "".join(v["delta"] for v in values if v["type"] == "response.output_text.delta")
    whole = _response(values[-1]["response"])
    _need(whole.text == text, f"the pieces say {text!r}, the whole {whole.text!r}")
    _one_name([v["response"]["id"] for v in values if "response" in v])
    return whole


def _messages(values: list[Any]) -> Said:
    kinds = [v["type"] for v in values]
    _need(kinds[0] == "message_start" and kinds[-1] == "message_stop", f"a stream from {kinds[0]} to {kinds[-1]}")
    _need(kinds.count("message_delta") == 1, "not one end")
    deltas = [v["delta"] for v in values if v["type"] == "content_block_delta"]
    return Said(values[0]["message"]["id"], "".join(delta["text"] for delta in deltas))


def _response(value: Any) -> Said:
    parts = [part["text"] for item in value["output"] if item["type"] == "message" for part in item["content"]]
    return Said(value["id"], "".join(parts))


_STREAMS: dict[str, Callable[[list[Any]], Said]] = {
    "chat": lambda values: _openai(values, lambda choice: choice["delta"].get("content") or ""),
    "completions": lambda values: _openai(values, lambda choice: choice["text"]),
    "responses": _responses,
    "messages": _messages,
}
_WHOLES: dict[str, Callable[[Any], Said]] = {
    "chat": lambda value: Said(value["id"], value["choices"][0]["message"]["content"] or ""),
    "completions": lambda value: Said(value["id"], value["choices"][0]["text"]),
    "responses": _response,
    "messages": lambda value: Said(value["id"], "".join(block["text"] for block in value["content"])),
}


def said(dialect: str, raw: bytes, *, stream: bool) -> Said:
    """What an answer says.

    Raises:
        Wrong: it is not what the dialect demands; an error in a stream is one.
        Refused: the queue is full.
    """
    try:
        if stream:
            values = events(raw)
            _no_error(values)
            return _STREAMS[dialect](values)
        return _WHOLES[dialect](json.loads(raw))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise Wrong(f"{type(error).__name__} {error} in {raw[-200:]!r}") from error


def _no_error(values: list[Any]) -> None:
    for value in values:
        error = value.get("error") if isinstance(value, dict) else None
        if isinstance(value, dict) and value.get("type") == "response.failed":
            error = value["response"]["error"]
        if error:
            text = json.dumps(error)
            if "queue" in text or "rate_limit" in text:
                raise Refused(text)
            raise Wrong(f"an error in a stream: {text}")
