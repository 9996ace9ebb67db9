"""Input items of a response as a conversation in OpenAI's chat form."""

import json
from typing import Any

from strata.server.dialects.responses.tools import HOSTED
from strata.server.errors import bad
from strata.server.fields import shown
from strata.server.sealed import Unsealer

_TEXTS = ("input_text", "output_text", "text", "reasoning_text", "summary_text")
_ELSEWHERE = {
    "item_reference": "nothing that it could stand for is kept here",
    "compaction": "only the service that made it can read it",
}
_ENDS = ("_call", "_call_output", "_list_tools", "_approval_request", "_approval_response", "_output")
"""Ends of the kinds of items that belong to tools which are left out; what came of them is in the texts."""


def read_items(value: Any, instructions: str | None) -> list[dict[str, Any]]:
    """All messages in order.

    Raises:
        ApiError: names the place and the kind of item that cannot be read.
    """
    messages: list[dict[str, Any]] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    if isinstance(value, str):
        return [*messages, {"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise bad(f"input must be a text or a list of items, and not empty; it is {shown(value)}", "input")
    reader = _Reader(messages)
    for place, item in enumerate(value):
        where = f"input[{place}]"
        if isinstance(item, str):
            item = {"role": "user", "content": item}  # noqa: PLW2901
        if not isinstance(item, dict):
            raise bad(f"{where} must be an object, not {shown(item)}", where)
        reader.read(item, where)
    reader.flush()
    return messages


class _Reader:
    """Puts thoughts, text and calls that belong to one turn of the assistant together."""

    def __init__(self, messages: list[dict[str, Any]]) -> None:
        self._messages = messages
        self._turn: dict[str, Any] | None = None
        self._sealed = Unsealer()

    def read(self, item: dict[str, Any], where: str) -> None:
        kind = item.get("type", "message")
        if not isinstance(kind, str):
            raise bad(f"{where}.type must be a text, not {shown(kind)}", where)
        if kind == "message":
            self._message(item, where)
        elif kind == "reasoning":
            self._reasoning(item, where)
        elif kind in ("function_call", "custom_tool_call"):
            plain = kind == "custom_tool_call"
            arguments = json.dumps({"input": item.get("input")}) if plain else item.get("arguments")
            function = {"name": item.get("name"), "arguments": arguments}
            call = {"id": item.get("call_id"), "type": "function", "function": function}
            self._assistant().setdefault("tool_calls", []).append(call)
        elif kind in ("function_call_output", "custom_tool_call_output"):
            self.flush()
            result = {"role": "tool", "content": text_of(item.get("output"), f"{where}.output")}
            name = item.get("call_id")
            self._messages.append(result | ({"tool_call_id": name} if isinstance(name, str) else {}))
        elif kind in _ELSEWHERE:
            raise bad(f"{where}.type is {shown(kind)}: {_ELSEWHERE[kind]}; send the items themselves", where)
        elif not (kind.startswith(HOSTED) and kind.endswith(_ENDS)):
            raise bad(f"{where}.type is {shown(kind)}, which this server cannot read", where)

    def flush(self) -> None:
        """The assistant's turn is complete."""
        if self._turn is not None:
            self._messages.append(self._turn)
            self._turn = None

    def _message(self, item: dict[str, Any], where: str) -> None:
        role = item.get("role")
        if role not in ("user", "assistant", "system", "developer"):
            raise bad(f"{where}.role must be user, assistant, system or developer, not {shown(role)}", where)
        text = text_of(item.get("content"), f"{where}.content")
        if role != "assistant":
            self.flush()
            self._messages.append({"role": role, "content": text})
            return
        turn = self._assistant()
        if turn["content"] or turn.get("tool_calls"):
            self.flush()
            turn = self._assistant()
        turn["content"] = text

    def _reasoning(self, item: dict[str, Any], where: str) -> None:
        parts = item.get("content") or []
        thought = self._sealed.unseal(item.get("encrypted_content")) or text_of(parts, f"{where}.content")
        turn = self._assistant()
        if turn["content"] or turn.get("tool_calls"):
            self.flush()
            turn = self._assistant()
        if thought:
            before = turn.get("reasoning_content")
            turn["reasoning_content"] = f"{before}\n\n{thought}" if before else thought

    def _assistant(self) -> dict[str, Any]:
        if self._turn is None:
            self._turn = {"role": "assistant", "content": ""}
        return self._turn


def text_of(value: Any, where: str) -> str:
    """A text, or the texts of a list of parts.

    Raises:
        ApiError: a part is no text; names its kind.
    """
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)  # a tool's output may be any JSON
    found: list[str] = []
    for place, part in enumerate(value):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "refusal":
            found.append(str(part.get("refusal") or ""))
        elif kind in _TEXTS and isinstance(part.get("text"), str):
            found.append(part["text"])
        elif kind in _TEXTS:
            raise bad(f"{where}[{place}].text must be a text", where)
        else:
            raise bad(f"{where}[{place}].type is {shown(kind)}; only text can be read, no pictures or files", where)
    return "".join(found)
