"""What was measured, for people."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strata.cli.table import table

if TYPE_CHECKING:
    from strata.loading.calibration import Part, Value

TITLES = {
    "ram": "Main memory",
    "disk": "Disk",
    "cpu": "CPU, GB/s of weights that are read once for all rows of a window, and microseconds of an expert",
    "gpu": "GPU",
    "link": "Link between RAM and GPU",
    "model": "Model",
    "tier": "Misses of experts",
}

SHORT = 65536
"""Bytes of a read below which reads count, not bytes."""

FAR = 0.5
"""Of the median, between the least and the most of some rounds: then the machine was not left alone."""


def as_text(parts: Sequence["Part"], path: str, *, whole: bool) -> str:
    """All parts, each with its medians and how far the rounds lay apart."""
    text = "".join(_part(part) for part in parts)
    if not whole:
        text += f"Stopped; {'what was measured before is kept' if parts else 'nothing was measured'}.\n"
    values = [value for part in parts for value in part.values]
    restless = sum(value.most - value.least > FAR * value.median for value in values)
    if restless > len(values) // 4:
        text += (
            f"Rounds of {restless} of {len(values)} measurements lay more than half of their median apart: something "
            "else was running. Measure again when nothing is.\n"
        )
    if values:
        text += f"Kept in {path}. `strata plan` and the engine begin with it.\n"
    return text


def _part(part: "Part") -> str:
    text = f"{TITLES[part.name]}{f': {part.about}' if part.about else ''}\n"
    single = [value for value in part.values if "rows" not in dict(value.keys)]
    if single:
        text += table(("", "Median", "Rounds", ""), [_row(value) for value in single], right=(1, 2))
    several = [value for value in part.values if "rows" in dict(value.keys)]
    if several:
        text += _grid(several)
    if part.problem:
        text += f"not measured: {part.problem}\n"
    return text + "\n"


def _row(value: "Value") -> tuple[str, str, str, str]:
    name, unit, factor = words(value)
    return name, number(value.median * factor), f"{number(value.least * factor)} to {number(value.most * factor)}", unit


def _grid(values: Iterable["Value"]) -> str:
    """Values that differ by rows alone side by side, and how far the rounds of the worst of them lay apart."""
    lines: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for value in values:
        name, unit, factor = words(value)
        apart = (value.most - value.least) / value.median if value.median else 0.0
        lines.setdefault((name, unit), {})[value["rows"]] = value.median * factor, apart
    columns = sorted({rows for line in lines.values() for rows in line})
    rows = [
        (
            name,
            *(number(line[count][0]) if count in line else "" for count in columns),
            unit,
            f"{100 * max(apart for _, apart in line.values()):.0f}%",
        )
        for (name, unit), line in lines.items()
    ]
    head = ("Rows of a window", *map(str, columns), "", "Spread")
    return table(head, rows, right=(*range(1, len(columns) + 1), len(columns) + 2))


def words(value: "Value") -> tuple[str, str, float]:
    """What a value is of, its unit for people, and what it is multiplied with for that."""
    told, unit, factor = _KINDS[value.name]
    keys = dict(value.keys)
    if value.name == "disk.random" and int(keys["bytes"]) < SHORT:
        unit, factor = "reads/s", 1e9 / int(keys["bytes"])
    return told(keys), unit, factor


def _threads(keys: Mapping[str, Any]) -> str:
    return f"{keys['threads']} thread{'s' * (keys['threads'] != 1)}"


def _expert(keys: Mapping[str, Any]) -> str:
    return f"expert {keys['types']} of {keys['hidden']}x{keys['inner']}"


def _random(keys: Mapping[str, Any]) -> str:
    size = f"{keys['bytes'] >> 10} KiB" if keys["bytes"] < SHORT else f"{keys['bytes'] / 1e6:.2f} MB"
    return f"{size} at random, {keys['depth']} at a time{_cached(keys)}"


def _cached(keys: Mapping[str, Any]) -> str:
    return "" if keys["direct"] else " (through the system's cache)"


def _way(keys: Mapping[str, Any]) -> str:
    return "to the GPU" if keys["to"] == "gpu" else "from the GPU"


def _always(text: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda _: text


_KINDS: Mapping[str, tuple[Callable[[Mapping[str, Any]], str], str, float]] = {
    "ram.read": (lambda keys: f"reading, {_threads(keys)}", "GB/s", 1.0),
    "disk.random": (_random, "GB/s", 1.0),
    "disk.sequential": (lambda keys: f"in order, {keys['depth']} at a time{_cached(keys)}", "GB/s", 1.0),
    "cpu.product": (lambda keys: f"{keys['type']}, {_threads(keys)}", "GB/s", 1.0),
    "cpu.expert": (lambda keys: f"{_expert(keys)}, {_threads(keys)}", "us", 1.0),
    "gpu.read": (_always("reading its memory"), "GB/s", 1.0),
    "gpu.copy": (_always("copying its memory, both ways counted"), "GB/s", 1.0),
    "gpu.products": (_always("float16 products"), "TFLOPS", 1.0),
    "gpu.start": (_always("one kernel more in a chain"), "us", 1.0),
    "gpu.replay": (_always("a graph, asked for and done"), "us", 1.0),
    "gpu.expert": (_expert, "us", 1.0),
    "link.copy": (lambda keys: f"copies {_way(keys)}", "GB/s", 1.0),
    "link.kernel": (lambda keys: f"kernels {_way(keys)}", "GB/s", 1.0),
    "link.expert": (lambda keys: f"{_expert(keys)}, brought and made ready", "us", 1.0),
    "model.window": (_always("a window"), "ms", 1e-3),
    "model.misses": (_always("experts that it missed"), "", 1.0),
    "model.step": (_always("a step of the draft head"), "ms", 1e-3),
    "tier.host": (lambda keys: f"each expert that the CPU computes, {_threads(keys)}", "us", 1.0),
    "tier.host_first": (_always("  before its first one"), "us", 1.0),
    "tier.link": (_always("each expert that the link brings"), "us", 1.0),
    "tier.link_first": (_always("  before its first one"), "us", 1.0),
}


def number(n: float) -> str:
    """Three digits."""
    if n >= 100:
        return f"{n:,.0f}"
    return f"{n:.1f}" if n >= 10 else f"{n:.2f}"
