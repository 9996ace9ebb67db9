"""A conversation on the command line."""

import contextlib
import difflib
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strata.api import Model
from strata.api.reply import Event
from strata.cli.interrupt import INTERRUPTED, Interrupts
from strata.cli.output import Output
from strata.cli.session import options
from strata.cli.stream import show
from strata.config import Settings
from strata.errors import StrataError
from strata.text import Content, Reasoning
from strata.text.chat.effort import check_effort

if TYPE_CHECKING:
    from collections.abc import Callable

HELP = """\
/help           this list
/reset          forget the conversation
/think on|off   let the model think before it answers
/effort LEVEL   how hard to think: low, medium or xhigh
/system TEXT    instructions that stand before the conversation, which starts anew; without TEXT none
/exit           leave; so does Ctrl-D
Ctrl-C stops an answer; that turn is then forgotten.
"""


class Conversation:
    """Turns so far, and the settings that commands may change."""

    def __init__(self, model: Model, settings: Settings, output: Output, system: str | None = None) -> None:
        self.model = model
        self.settings = settings
        self.output = output
        self.system = system
        self.turns: list[dict[str, Any]] = []

    def ask(self, text: str) -> None:
        """Answer one more user message; if that fails, the message is forgotten."""
        question = {"role": "user", "content": text}
        first = [{"role": "system", "content": self.system}] if self.system else []
        events = show(
            lambda on_prompt: self.model.stream_chat(
                [*first, *self.turns, question],
                thinking=self.settings.thinking,
                effort=self.settings.effort,
                on_prompt=on_prompt,
                **options(self.settings),
            ),
            self.output,
        )
        self.turns += [question, _answer(events)]

    def talk(self, interrupts: Interrupts) -> int:
        """Read lines and answer them until told to stop; returns the exit code."""
        with contextlib.suppress(ImportError):  # some builds of Python lack it; lines can be typed all the same
            import readline  # noqa: F401  # editing, and a history that ends with the command

        self.output.note(f"{self.model.name}. /help lists the commands, Ctrl-D leaves.")
        stopped = False
        while True:
            try:
                with interrupts.raising():
                    line = _read_line()
                    stopped = False
                    if line is None or not self.obey(line.strip()):
                        return 0
            except KeyboardInterrupt:
                if stopped:
                    return INTERRUPTED
                stopped = True
                sys.stderr.write("\n")
                self.output.note("stopped. Ctrl-C once more, Ctrl-D or /exit leaves.")

    def obey(self, line: str) -> bool:
        """Do what a typed line says; False means leave."""
        if not line:
            return True
        try:
            if line.startswith("/"):
                return self.command(*line[1:].split(maxsplit=1))
            self.ask(line)
        except StrataError as error:
            self.output.error(str(error))
        return True

    def command(self, name: str = "", argument: str = "") -> bool:
        """Obey a line that starts with a slash; False means leave."""
        if name == "exit":
            return False
        commands: dict[str, Callable[[str], None]] = {
            "help": lambda _: self._say(HELP),
            "reset": lambda _: self._reset(),
            "think": self._think,
            "effort": self._effort,
            "system": self._system,
        }
        if name in commands:
            commands[name](argument.strip())
        else:
            close = difflib.get_close_matches(name, [*commands, "exit"], n=1)
            self.output.note(f"no command /{name}; " + (f"did you mean /{close[0]}?" if close else "/help lists all"))
        return True

    def _say(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def _reset(self) -> None:
        self.turns.clear()
        self.output.note("the conversation is forgotten")

    def _think(self, argument: str) -> None:
        if argument not in {"on", "off"}:
            self.output.note(f"thinking is {'on' if self.settings.thinking else 'off'}; /think on or /think off")
            return
        self.settings = replace(self.settings, thinking=argument == "on")
        self.output.note(f"thinking is {argument}")

    def _effort(self, argument: str) -> None:
        if argument:
            check_effort(argument)
            self.settings = replace(self.settings, effort=argument)
        self.output.note(f"effort is {self.settings.effort or 'the default of the model'}")

    def _system(self, argument: str) -> None:
        self.system = argument or None
        self.turns.clear()
        self.output.note("a new conversation begins" + (" with these instructions" if argument else ""))


def _answer(events: list[Event]) -> dict[str, Any]:
    """The assistant's turn that a stream amounts to."""
    return {
        "role": "assistant",
        "content": "".join(event.text for event in events if isinstance(event, Content)),
        "reasoning_content": "".join(event.text for event in events if isinstance(event, Reasoning)),
    }


def _read_line() -> str | None:
    """A line typed by a person; None at the end of input."""
    if not sys.stdout.isatty():  # there the prompt would land among the answers
        sys.stderr.write("> ")
        sys.stderr.flush()
        return sys.stdin.readline() or None
    try:
        return input("> ")
    except EOFError:
        sys.stdout.write("\n")
        return None
