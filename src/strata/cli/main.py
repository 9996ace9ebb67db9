"""Where the command starts and where every error ends."""

import contextlib
import os
import sys
import traceback
from pathlib import Path

from strata.cli.context import Context
from strata.cli.interrupt import INTERRUPTED, Interrupts
from strata.cli.usage import UsageError
from strata.errors import ConfigError, StrataError

OK, FAILED, USAGE, PIPE = 0, 1, 2, 141
"""Exit codes, as docs/cli.md lists them; and INTERRUPTED."""


def main(tokens: list[str] | None = None) -> int:
    """Run one command line; None takes the process's own.

    Returns:
        The exit code.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # started with it closed
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # for as long as the process lives
    try:
        with Interrupts() as interrupts:
            return _run(sys.argv[1:] if tokens is None else tokens, Context(interrupts))
    except KeyboardInterrupt:  # before the handler was there
        return INTERRUPTED
    except OSError as error:
        # stdout or stderr takes no more: a pipe whose reader has seen enough, or a full disk.
        return _give_up(error)


def _run(tokens: list[str], context: Context) -> int:
    from cyclopts.exceptions import CycloptsError

    from strata.cli.app import build, call, explain

    for stream in (sys.stdout, sys.stderr):
        # What the terminal's encoding lacks is shown as an escape; file names may hold bytes that are no text at all.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        code = call(build(context), tokens)
        sys.stdout.flush()
    except CycloptsError as error:
        return _fail(context, explain(error), USAGE)
    except StrataError as error:
        return _fail(context, str(error), USAGE if isinstance(error, ConfigError | UsageError) else FAILED)
    except OSError:
        raise
    except MemoryError:
        return _fail(context, "memory ran out; `strata inspect` says how much a model needs", FAILED)
    except Exception as error:  # noqa: BLE001  # the last line of defence: a user gets a sentence, not a traceback
        hint = "" if context.debug else "; --debug shows where"
        return _fail(context, f"unexpected {type(error).__name__}: {error} (this is a bug in strata{hint})", FAILED)
    return code


def _fail(context: Context, message: str, code: int) -> int:
    if context.debug:
        traceback.print_exc()
    context.output.error(message)
    return code


def _give_up(error: OSError) -> int:
    """Say what can still be said, and keep the interpreter from writing what is left when it ends."""
    code = PIPE if isinstance(error, BrokenPipeError) else FAILED
    with contextlib.suppress(OSError):
        if code != PIPE:
            os.write(2, f"strata: error: {error}\n".encode())
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code
