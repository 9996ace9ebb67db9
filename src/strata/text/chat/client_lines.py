"""What clients write at the head of a system prompt for the service behind it, and not for the model (case K13).

Claude Code sends a line with a number that differs in every request. A recurrent state belongs to the exact tokens
before it, so with that line in the prompt nothing of a conversation could ever be taken from what is kept.
"""

import re

_LINE = re.compile(r"\Ax-anthropic-billing-header:[^\n]*(?:\n|\Z)")


def without_client_line(system: str) -> str:
    """A system prompt, or the first part of one, without such a line at its very beginning."""
    return _LINE.sub("", system)
