"""A last message from the assistant that is to be continued.

The rule, whatever the other settings: a last assistant message with text and without calls is continued. Its turn is
rendered by the template and cut off right after its text, so there is no end marker and no new turn. A message that
begins with an open ``<think>`` continues inside the think block; one with a closed block, or without one, continues
after it. A turn with calls, or without text, is finished: a new turn begins after it.
"""

from typing import Any

from strata.text.chat.marks import Marks

_OPEN, _CLOSE = "<think>", "</think>"


def is_prefill(message: dict[str, Any]) -> bool:
    """Whether this last message is to be continued."""
    return message["role"] == "assistant" and not message.get("tool_calls") and bool(message["content"].strip())


def mark_end(message: dict[str, Any], marks: Marks) -> dict[str, Any]:
    """The message with a mark where the model is to go on."""
    content: str = message["content"]
    start = content.lstrip()
    if start.startswith(_OPEN) and _CLOSE not in start:
        # As reasoning, because the template would write a closed block before it.
        return message | {"content": "", "reasoning_content": start.removeprefix(_OPEN).lstrip("\n") + marks.cut}
    return message | {"content": content + marks.cut}
