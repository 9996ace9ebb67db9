"""Anthropic's messages as a conversation in OpenAI's form."""

from typing import Any

from strata.server.errors import ApiError, bad
from strata.server.fields import shown
from strata.server.sealed import Unsealer

_BETWEEN = "\n\n"
"""What stands between the text blocks of one message."""


def read_system(value: Any) -> list[dict[str, Any]]:
    """The system prompt as a first message, or none."""
    if value is None:
        return []
    text = value if isinstance(value, str) else _joined(_blocks(value, "system"))
    return [{"role": "system", "content": text}] if text.strip() else []


def read_messages(value: Any) -> list[dict[str, Any]]:
    """All messages in order; one message may become several, because results of tools stand for themselves.

    Raises:
        ApiError: names the place and the kind of block that cannot be read.
    """
    if not isinstance(value, list) or not value:
        raise bad("messages must be a list of at least one message", "messages")
    found: list[dict[str, Any]] = []
    sealed = Unsealer()
    for place, message in enumerate(value):
        where = f"messages[{place}]"
        if not isinstance(message, dict):
            raise bad(f"{where} must be an object, not {shown(message)}", where)
        role, content = message.get("role"), message.get("content")
        if role == "system":
            found.append({"role": "system", "content": content if isinstance(content, str) else _texts(content, where)})
        elif role == "user":
            found += _user(content, where)
        elif role == "assistant":
            found.append(_assistant(content, where, sealed))
        else:
            raise bad(f"{where}.role must be user, assistant or system, not {shown(role)}", f"{where}.role")
    return found


def _user(content: Any, where: str) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"role": "user", "content": content}]
    found: list[dict[str, Any]] = []
    texts: list[str] = []

    def flush() -> None:
        if texts:
            found.append({"role": "user", "content": _BETWEEN.join(texts)})
            texts.clear()

    for block, place in _blocks(content, f"{where}.content"):
        if block["type"] == "tool_result":
            flush()
            result = {"role": "tool", "content": _result(block.get("content"), place)}
            name = block.get("tool_use_id")
            found.append(result | ({"tool_call_id": name} if isinstance(name, str) else {}))
        elif not _hosted(block["type"]):
            texts.append(_text(block, place))
    flush()
    return found or [{"role": "user", "content": ""}]


def _assistant(content: Any, where: str, sealed: Unsealer) -> dict[str, Any]:
    if content is None or isinstance(content, str):
        return {"role": "assistant", "content": content or ""}
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block, place in _blocks(content, f"{where}.content"):
        kind = block["type"]
        if kind == "thinking":
            thought = block.get("thinking") or sealed.unseal(block.get("signature")) or ""
            if not isinstance(thought, str):
                raise bad(f"{place}.thinking must be a text, not {shown(thought)}", place)
            thoughts.append(thought)
        elif kind == "redacted_thinking" or _hosted(kind):
            continue  # another service's, which nobody here can read
        elif kind == "tool_use":
            function = {"name": block.get("name"), "arguments": block.get("input") or {}}
            calls.append({"id": block.get("id"), "type": "function", "function": function})
        else:
            texts.append(_text(block, place))
    message: dict[str, Any] = {"role": "assistant", "content": _BETWEEN.join(text for text in texts if text)}
    if any(thoughts):
        message["reasoning_content"] = _BETWEEN.join(thought for thought in thoughts if thought)
    if calls:
        message["tool_calls"] = calls
    return message


def _hosted(kind: str) -> bool:
    """Whether a block belongs to a tool that Anthropic has run; those tools are left out, too."""
    return kind in {"server_tool_use", "mcp_tool_use", "container_upload"} or kind.endswith("_tool_result")


def _result(content: Any, where: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return _texts(content, f"{where}")


def _texts(content: Any, where: str) -> str:
    return _joined(_blocks(content, f"{where}.content"))


def _joined(blocks: list[tuple[dict[str, Any], str]]) -> str:
    found = [_text(block, place) for block, place in blocks]
    return _BETWEEN.join(text for text in found if text)


def _blocks(content: Any, where: str) -> list[tuple[dict[str, Any], str]]:
    if not isinstance(content, list):
        raise bad(f"{where} must be a text or a list of blocks, not {shown(content)}", where)
    for place, block in enumerate(content):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise bad(f"{where}[{place}] must be a block with a type", f"{where}[{place}]")
    return [(block, f"{where}[{place}]") for place, block in enumerate(content)]


def _text(block: dict[str, Any], where: str) -> str:
    if block["type"] != "text":
        raise unreadable(block["type"], where)
    text = block.get("text")
    if not isinstance(text, str):
        raise bad(f"{where}.text must be a text, not {shown(text)}", where)
    return text


def unreadable(kind: str, where: str) -> ApiError:
    """A part that is no text."""
    return bad(f"{where}.type is {kind!r}; only text can be read, no pictures, files or documents", where)
