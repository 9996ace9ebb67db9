"""The commands put together."""

import difflib
from collections.abc import Callable
from dataclasses import fields
from typing import Annotated

from cyclopts import App, Group, Parameter
from cyclopts.exceptions import CycloptsError, UnknownOptionError

from strata import __version__
from strata.cli.chat import chat
from strata.cli.completion import completion
from strata.cli.config import config
from strata.cli.context import Context
from strata.cli.doctor.command import doctor
from strata.cli.flags import GlobalFlags
from strata.cli.inspection.command import inspect
from strata.cli.run import run

HELP = """Runs very large mixture-of-experts models on ordinary machines.

Without --model it runs Pebble, the small model in the box: try `strata chat "Count from 1 to 20."`
"""

_NO_FLAGS = GlobalFlags()
_GLOBAL_NAMES = {f"--{field.name}" for field in fields(GlobalFlags)}


def bare() -> App:
    """The commands without what runs them: for help, completion and documents."""
    app = App(
        name="strata",
        help=HELP,
        help_flags=["--help", "-h"],
        version=__version__,
        version_flags=["--version"],
        group_parameters=Group("Options", sort_key=1),
    )
    app.meta.group_parameters = Group("Global options", sort_key=2)
    for command in (chat, run, inspect, doctor, config, completion):
        app.command(command)
    return app


def build(context: Context) -> Callable[[list[str]], int]:
    """A function that runs a command line and returns the exit code."""
    app = bare()

    @app.meta.default
    def _meta(
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)], flags: GlobalFlags = _NO_FLAGS
    ) -> int:
        context.take(json=flags.json, config=flags.config, flags=flags.settings())
        command, bound, ignored = app.parse_args(tokens, exit_on_error=False, print_error=False)
        given = {"context": context} if "context" in ignored else {}
        return command(*bound.args, **bound.kwargs, **given) or 0

    def line(tokens: list[str]) -> int:
        command, bound, _ = app.meta.parse_args(tokens, exit_on_error=False, print_error=False)
        return command(*bound.args, **bound.kwargs) or 0

    return line


def explain(error: CycloptsError) -> str:
    """A parsing error in one sentence, with the nearest valid name of a mistyped option."""
    text = " ".join(str(error).split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    if isinstance(error, UnknownOptionError) and "Did you mean" not in text:
        typed = (error.token.keyword or error.token.value).partition("=")[0]
        names = {name for argument in error.argument_collection for name in argument.names}
        close = difflib.get_close_matches(typed, sorted(names | _GLOBAL_NAMES), n=1)
        text += f"; did you mean {close[0]}?" if close else ""
    return text
