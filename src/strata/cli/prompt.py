"""The prompt of a command line."""

import sys

from strata.cli.usage import UsageError


def find_prompt(argument: str | None) -> str | None:
    """The prompt: the argument, or without one what is piped in; None if a person sits at stdin.

    Of what is piped in the line break at the end is no part.

    Raises:
        UsageError: there is nothing in it, or it is not UTF-8 text.
    """
    if argument is None:
        if sys.stdin.isatty():
            return None
        argument = _piped()
    if not argument:
        raise UsageError("the prompt is empty: neither an argument nor a text piped in says anything")
    return argument


def _piped() -> str:
    try:
        text = sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"the text piped in is not UTF-8 (byte {error.start})") from error
    return text.removesuffix("\n").removesuffix("\r")
