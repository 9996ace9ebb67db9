"""The program that renders a chat template, run as a process of its own (see `renderer`).

A template is a program from a file that somebody else wrote. Jinja's sandbox keeps it away from Python's internals, but
one expression can still ask for any amount of time or memory. Here the kernel sets the limits: a CPU timer whose signal
ends the process, and a ceiling on its memory.

The first line on standard input is the set-up, each further line one request; each gets one line of JSON in answer.
Standard library and jinja2 only: the file is run by its path and must not import the package.
"""

import json
import re
import resource
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, NoReturn

_SHOWN = 2000  # characters of an error's text that are passed on


class _RaisedError(Exception):
    """The template called raise_exception; the text is its own."""


class _OverLimitError(Exception):
    """The result is too long."""


def _raise_exception(message: object = "") -> NoReturn:
    raise _RaisedError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as a template's author sees it: nothing escaped for HTML, characters as they are."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _compile(setup: dict[str, Any]) -> Any:
    """Compile the template with every control token in its own literals replaced by a mark.

    What a message contains is never looked at, so nothing typed into one can turn into a mark.
    """
    from jinja2 import nodes
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
        optimized=False,  # constants like 'x' * 10**9 are for rendering, not for loading a model
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    environment.filters.pop("random")  # the same messages give the same prompt
    environment.globals.pop("lipsum")
    tree = environment.parse(setup["template"])
    marks: dict[str, str] = setup["marks"]
    if marks:
        controls = re.compile("|".join(re.escape(text) for text in sorted(marks, key=len, reverse=True)))

        def marked(text: str) -> str:
            return controls.sub(lambda found: marks[found[0]], text)

        for data in tree.find_all(nodes.TemplateData):
            data.data = marked(data.data)
        for constant in tree.find_all(nodes.Const):
            if isinstance(constant.value, str):
                constant.value = marked(constant.value)
    code = environment.compile(tree)
    return environment.template_class.from_code(environment, code, environment.make_globals(None))


def _render(template: Any, variables: dict[str, Any], characters: int) -> str:
    parts: list[str] = []
    room = characters
    for part in template.generate(**variables):
        parts.append(part)
        room -= len(part)
        if room < 0:
            raise _OverLimitError(f"writes more than {characters:,} characters")
    return "".join(parts)


def _answer(work: Callable[[], object], seconds: float) -> dict[str, object]:
    """The result of ``work()``, or what went wrong; the timer ends the process when the time is used up."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return {"ok": work()}
    except _RaisedError as raised:
        return {"raised": str(raised)[:_SHOWN]}
    except _OverLimitError as over:
        return {"limit": str(over)}
    except MemoryError:
        return {"limit": "needs more memory than it may have"}
    except RecursionError:
        return {"limit": "nests too deeply"}
    except Exception as failed:  # noqa: BLE001  # whatever a template does wrong is reported, with its kind
        line = getattr(failed, "lineno", None)
        return {"failed": f"{type(failed).__name__}: {failed}"[:_SHOWN] + (f" (line {line})" if line else "")}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main() -> None:
    """Serve until standard input ends."""
    setup = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = setup["path"]
    resource.setrlimit(resource.RLIMIT_AS, (setup["memory"], setup["memory"]))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    template: Any = None

    def compiled() -> None:
        nonlocal template
        template = _compile(setup)

    def rendered(line: bytes) -> str:
        return _render(template, json.loads(line), setup["characters"])

    def send(answer: dict[str, object]) -> None:
        sys.stdout.buffer.write(json.dumps(answer, ensure_ascii=False).encode() + b"\n")
        sys.stdout.buffer.flush()

    send(_answer(compiled, setup["seconds"]))
    for line in sys.stdin.buffer:
        send(_answer(partial(rendered, line), setup["seconds"]))


if __name__ == "__main__":
    main()
