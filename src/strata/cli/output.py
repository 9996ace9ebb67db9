"""What the command prints: results on stdout, everything else on stderr."""

import json
import sys
from typing import Any

_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"}


def printable(text: str) -> str:
    """Control characters as escapes: what a model or a file says must not steer the terminal."""
    return text.translate(_CONTROLS)


class Output:
    """stdout and stderr of one command.

    Attributes:
        json: results are JSON, for machines.
    """

    def __init__(self) -> None:
        self.json = False

    def text(self, text: str) -> None:
        """Write to stdout at once, as it is; to a terminal without control characters."""
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        sys.stdout.flush()

    def record(self, value: dict[str, Any]) -> None:
        """Write one JSON object as one line to stdout at once."""
        sys.stdout.write(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()

    def note(self, text: str) -> None:
        """Tell a person something beside the result."""
        sys.stderr.write(f"strata: {printable(text)}\n")
        sys.stderr.flush()

    def error(self, message: str) -> None:
        """Say what went wrong, in one line."""
        self.note(f"error: {' '.join(message.split())}")
        if self.json:
            self.record({"type": "error", "message": message})

    def thought(self, text: str) -> None:
        """Show what the model thinks, dimmed, if a person looks on."""
        if sys.stderr.isatty():
            # On and off around every piece, so that the terminal is sane wherever the work is stopped.
            sys.stderr.write(f"\x1b[2m{printable(text)}\x1b[0m")
            sys.stderr.flush()
