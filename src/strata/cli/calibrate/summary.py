"""What was measured in a line for each part, for `strata doctor`."""

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from strata.cli.calibrate.as_text import number

if TYPE_CHECKING:
    from strata.loading.calibration import Part, Record, Value

NAMES = {
    "ram": "RAM", "disk": "disk", "cpu": "CPU kernels", "gpu": "GPU", "link": "link", "model": "model",
    "tier": "misses",
}  # fmt: skip


def summary(record: "Record") -> list[str]:
    """A line for each part."""
    found = []
    for part in sorted(record.parts, key=lambda part: list(NAMES).index(part.name)):
        told = ", ".join(_FEW[part.name](part))
        if told:
            found.append(f"{NAMES[part.name]}: {told} ({part.when[:10]}{', quick' if part.quick else ''})")
    return found


def _of(part: "Part", name: str, **keys: object) -> "list[Value]":
    return [value for value in part.values if value.name == name and set(keys.items()) <= set(value.keys)]


def _best(values: "list[Value]") -> "Value | None":
    return max(values, key=lambda value: value.median, default=None)


def _ram(part: "Part") -> Iterator[str]:
    best = _best(_of(part, "ram.read"))
    if best:
        yield f"{number(best.median)} GB/s with {best['threads']} threads"


def _disk(part: "Part") -> Iterator[str]:
    best = _best(list(part.values))
    if best:
        yield f"{number(best.median)} GB/s from {part.about}"


def _cpu(part: "Part") -> Iterator[str]:
    values = _of(part, "cpu.product", rows=1)
    most = max((value["threads"] for value in values), default=0)
    some = [f"{value['type']} {number(value.median)}" for value in values if value["threads"] == most]
    if some:
        yield f"{', '.join(some)} GB/s"


def _gpu(part: "Part") -> Iterator[str]:
    for name, unit in (("gpu.read", "GB/s"), ("gpu.products", "TFLOPS")):
        for value in _of(part, name):
            yield f"{number(value.median)} {unit}"


def _link(part: "Part") -> Iterator[str]:
    for value in _of(part, "link.copy"):
        yield f"{number(value.median)} GB/s {'to' if value['to'] == 'gpu' else 'from'} the GPU"


def _model(part: "Part") -> Iterator[str]:
    for value in _of(part, "model.window", rows=1):
        yield f"{part.about}: {number(value.median / 1e3)} ms a window of one row"


def _tier(part: "Part") -> Iterator[str]:
    for name, where in (("tier.host", "on the CPU"), ("tier.link", "over the link")):
        for value in _of(part, name)[:1]:
            yield f"{number(value.median)} us an expert {where}"


_FEW: Mapping[str, Callable[["Part"], Iterator[str]]] = {
    "ram": _ram, "disk": _disk, "cpu": _cpu, "gpu": _gpu, "link": _link, "model": _model, "tier": _tier,
}  # fmt: skip
