"""System messages that are not the first message.

Templates of this family raise on them, yet agents send them. A later system message is rendered at its own place, as a
turn of its own with the role word ``system``. For that the template is given a user message, written like a tool result
so that it does not count as the last question (which decides what past reasoning is shown), and the role word before it
is changed in the result.
"""

import re
from typing import Any

from strata.errors import TextError
from strata.text.chat.marks import Marks

_BEFORE, _AFTER = "<tool_response>", "</tool_response>"


def hide_later_system(messages: list[dict[str, Any]], marks: Marks) -> list[dict[str, Any]]:
    """The messages with each system message after the first place as a marked user message."""
    return [
        message
        if place == 0 or message["role"] != "system"
        else {"role": "user", "content": _BEFORE + marks.opening + message["content"].strip() + marks.closing + _AFTER}
        for place, message in enumerate(messages)
    ]


def show_later_system(rendered: str, marks: Marks, count: int) -> str:
    """The rendered text with the marked user turns as system turns.

    Args:
        rendered: What the template made of `hide_later_system`'s messages.
        marks: The marks that were used there.
        count: Number of marked messages.

    Raises:
        TextError: The template does not write these messages as turns that begin with the word "user".
    """
    if not count:
        return rendered
    turn = re.compile(
        r"user(\s*)" + re.escape(_BEFORE + marks.opening) + "(.*?)" + re.escape(marks.closing + _AFTER), re.DOTALL
    )
    shown, found = turn.subn(r"system\1\2", rendered)
    if found != count:
        raise TextError(
            f"Of {count} system messages after the first message, the chat template has a place for {found}. "
            "Put the text into the first system message or into a user message."
        )
    return shown
