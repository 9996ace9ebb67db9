"""What every command needs to know of its command line."""

from pathlib import Path
from typing import Any

from strata.cli.interrupt import Interrupts
from strata.cli.output import Output
from strata.config import Resolved, resolve


class Context:
    """Handed to every command.

    Attributes:
        interrupts: Ctrl-C.
        output: stdout and stderr.
        debug: show tracebacks.
    """

    def __init__(self, interrupts: Interrupts) -> None:
        self.interrupts = interrupts
        self.output = Output()
        self.debug = False
        self._flags: dict[str, Any] = {}
        self._config: Path | None = None

    def take(self, *, json: bool, config: Path | None, flags: dict[str, Any]) -> None:
        """Note the options that all commands share; `flags` are settings."""
        self.output.json = json
        self._config = config
        self._flags = flags
        self.debug = bool(flags.get("debug"))

    def resolve(self, flags: dict[str, Any] | None = None) -> Resolved:
        """The settings in force, `flags` being those of the command itself."""
        resolved = resolve({**self._flags, **(flags or {})}, config=self._config)
        self.debug = resolved.settings.debug
        if self.debug:
            import logging

            logging.basicConfig(level=logging.INFO, format="strata: %(name)s: %(message)s")
        return resolved
