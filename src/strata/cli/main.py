"""Where the command starts and where every error ends."""

import contextlib
import os
import sys
import traceback
from typing import TYPE_CHECKING

from strata.cli.interrupt import INTERRUPTED, Interrupts
from strata.errors import ConfigError, StrataError

if TYPE_CHECKING:
    from strata.cli.context import Context

OK, FAILED, USAGE, PIPE = 0, 1, 2, 141
"""Exit codes, as docs/cli.md lists them; and INTERRUPTED."""


def main(tokens: list[str] | None = None) -> int:
    """Run one command line; None takes the process's own.

    Returns:
        The exit code.
    """
    interrupts = Interrupts()
    try:
        with interrupts:
            return _run(sys.argv[1:] if tokens is None else tokens, interrupts)
    except KeyboardInterrupt:  # before the handler was there
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough. Nothing may be flushed into the pipe at exit either.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE


def _run(tokens: list[str], interrupts: Interrupts) -> int:
    # Only now, so that Ctrl-C is already looked after.
    from cyclopts.exceptions import CycloptsError

    from strata.cli.app import build, call, explain
    from strata.cli.context import Context
    from strata.cli.usage import UsageError

    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding lacks is shown as an escape; file names may hold bytes that are no text at all.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    context = Context(interrupts)
    try:
        code = call(build(context), tokens)
        sys.stdout.flush()
    except CycloptsError as error:
        return _fail(context, explain(error), USAGE)
    except StrataError as error:
        return _fail(context, str(error), USAGE if isinstance(error, ConfigError | UsageError) else FAILED)
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  # the last line of defence: a user gets a sentence, not a traceback
        hint = "" if context.debug else "; --debug shows where"
        return _fail(context, f"unexpected {type(error).__name__}: {error} (this is a bug in strata{hint})", FAILED)
    return code


def _fail(context: "Context", message: str, code: int) -> int:
    if context.debug:
        traceback.print_exc()
    context.output.error(message)
    return code
