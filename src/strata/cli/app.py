"""The commands put together."""

import difflib
from dataclasses import fields
from typing import Annotated

from cyclopts import App, Group, Parameter
from cyclopts.exceptions import CycloptsError, UnknownCommandError, UnknownOptionError, UnusedCliTokensError

from strata import __version__
from strata.cli.bench.command import bench
from strata.cli.calibrate.command import calibrate
from strata.cli.chat import chat
from strata.cli.completion import completion
from strata.cli.config import config
from strata.cli.context import Context
from strata.cli.doctor.command import doctor
from strata.cli.flags import GlobalFlags
from strata.cli.inspection.command import inspect
from strata.cli.plan.command import plan
from strata.cli.pull.command import pull
from strata.cli.run import run
from strata.cli.serve import serve

HELP = """Runs very large mixture-of-experts models on ordinary machines.

Without --model it runs Pebble, the small model in the box: try `strata chat "Count from 1 to 20."`
"""

_NO_FLAGS = GlobalFlags()
_GLOBAL_NAMES = {f"--{field.name.replace('_', '-')}" for field in fields(GlobalFlags)}


def build(context: Context) -> App:
    """All commands. They see the options that stand before or behind any of them through `context`."""
    app = App(
        name="strata",
        help=HELP,
        help_flags=["--help", "-h"],
        version=__version__,
        version_flags=["--version"],
        group_parameters=Group("Options", sort_key=1),
    )
    for command in (chat, run, serve, pull, plan, calibrate, bench, inspect, doctor, config, completion):
        app.command(command)
    app.meta.group_parameters = Group("Global options", sort_key=2)

    @app.meta.default
    def _meta(
        *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)], flags: GlobalFlags = _NO_FLAGS
    ) -> int:
        context.take(json=flags.json, config=flags.config, flags=flags.settings())
        command, bound, ignored = app.parse_args(tokens, exit_on_error=False, print_error=False)
        given = {"context": context} if "context" in ignored else {}
        return command(*bound.args, **bound.kwargs, **given) or 0

    return app


def call(app: App, tokens: list[str]) -> int:
    """Run a command line and return the exit code.

    Raises:
        CycloptsError: the tokens are no command line of ours.
    """
    command, bound, _ = app.meta.parse_args(tokens, exit_on_error=False, print_error=False)
    return command(*bound.args, **bound.kwargs) or 0


def explain(error: CycloptsError) -> str:
    """A parsing error in one sentence, with the nearest valid name of a mistyped option."""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"unexpected argument {error.unused_tokens[0]!r}; a text with spaces needs quotes around it"
    text = " ".join(str(error).split()).rstrip(".")
    text = text[:1].lower() + text[1:]
    typed, names = "", set(_GLOBAL_NAMES)
    if isinstance(error, UnknownOptionError):
        typed = error.token.keyword or error.token.value
        names |= {name for argument in error.argument_collection for name in argument.names}
    elif isinstance(error, UnknownCommandError) and error.unused_tokens:
        typed = error.unused_tokens[0]
    if typed.startswith("-"):  # among all names, those of every command too
        close = difflib.get_close_matches(typed.partition("=")[0], sorted(names), n=1)
        if not (close and f"Did you mean {close[0]}?" in text):
            return f"unknown option: {typed}" + (f"; did you mean {close[0]}?" if close else "")
    return text
