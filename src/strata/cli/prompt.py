"""Prompts that come through a pipe."""

import sys

from strata.cli.usage import UsageError


def piped_prompt() -> str | None:
    """All of stdin as text, without the line break at its end; None if stdin is a terminal.

    Raises:
        UsageError: nothing came, or it is not UTF-8 text.
    """
    if sys.stdin is None or sys.stdin.isatty():
        return None
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text piped in is not UTF-8 (byte {error.start})") from error
    text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise UsageError("no prompt: nothing was given as an argument, and nothing was piped in")
    return text
