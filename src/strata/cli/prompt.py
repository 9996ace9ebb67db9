"""The prompt of a command line."""

import os
import sys

from strata.cli.usage import UsageError


def find_prompt(argument: str | None) -> str | None:
    """The prompt: the argument, or without one what is piped in; None if a person sits at stdin.

    Of what is piped in, a byte order mark and the line break at the end are no part.

    Raises:
        UsageError: there is nothing in it, or it is not UTF-8 text.
    """
    if argument is None:
        if sys.stdin.isatty():
            return None
        argument = _piped()
    else:
        argument = _text(os.fsencode(argument), "the prompt")
    if not argument:
        raise UsageError("the prompt is empty: neither an argument nor a text piped in says anything")
    return argument


def _piped() -> str:
    text = _text(sys.stdin.buffer.read(), "the text piped in").removeprefix("\ufeff")  # a byte order mark
    return text.removesuffix("\n").removesuffix("\r")


def _text(given: bytes, what: str) -> str:
    try:
        return given.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{what} is not UTF-8 (byte {error.start})") from error
