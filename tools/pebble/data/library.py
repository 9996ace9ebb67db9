"""Questions about Python's standard library, answered by the first line of the documentation."""

import builtins
import importlib
import inspect
import random

from pebble.data.dialogue import Message

MODULES = (  # noqa: SIM905  # a thousand quotes would hide the words
    "math os os.path sys re json random string textwrap itertools functools collections pathlib shutil tempfile glob "
    "time datetime calendar copy csv hashlib heapq bisect statistics struct operator contextlib dataclasses decimal "
    "fractions io logging threading subprocess socket pprint secrets base64 zlib gzip inspect traceback types weakref "
    "enum difflib fnmatch getpass platform shlex signal urllib.parse uuid"
).split()
_ASKS = (
    "What does {x} do?",
    "what does {x} do",
    "What is {x}?",
    "What does {x} do in Python?",
    "Explain {x}.",
    "What is {x} for?",
)


def _summary(thing: object) -> str | None:
    lines = (inspect.getdoc(thing) or "").strip().splitlines()
    line = lines[0].strip() if lines else ""
    usable = line.isascii() and 15 < len(line) < 110 and "->" not in line and line[0].isupper() and "(" not in line
    return line if usable else None


def entries() -> list[tuple[str, str]]:
    """(name, first line of its documentation) of well-known functions and classes, sorted."""
    found: dict[str, str] = {}
    for name in ["builtins", *MODULES]:
        module = builtins if name == "builtins" else importlib.import_module(name)
        prefix = "" if name == "builtins" else f"{name}."
        for key in getattr(module, "__all__", None) or dir(module):
            thing = getattr(module, key, None)
            if (
                key.startswith("_")
                or not callable(thing)
                or (inspect.isclass(thing) and issubclass(thing, BaseException))
            ):
                continue
            line = _summary(thing)
            if line:
                found[prefix + key] = line
    return sorted(found.items())


def exchange(name: str, line: str, ask: str) -> list[Message]:
    """A question and the documentation's own words."""
    return [
        Message("user", ask.format(x=name), weight=0.2),
        Message("assistant", f"{name}: {line}", think=f"This is about {name}."),
    ]


def draw(rng: random.Random, known: list[tuple[str, str]]) -> list[Message]:
    """A question about one entry; builtins, which come up most, three times as often."""
    name, line = rng.choice(known)
    for _ in range(2):
        if "." in name and rng.random() < 0.3:
            name, line = rng.choice(known)
    shown = name + "()" if rng.random() < 0.15 else name
    return exchange(name, line, rng.choice(_ASKS).replace("{x}", shown))
