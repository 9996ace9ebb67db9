"""Everything measured on one machine, and its form as JSON."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from strata.loading.calibration.errors import CalibrationError
from strata.loading.calibration.machine import Machine

MOST_VALUES = 20_000
"""Values of a record; a machine with many disks and models has a few hundred."""

TEXT = 400
"""Letters of a name in a record."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What one kind of values is.

    Attributes:
        unit: of its values.
        keys: what tells values of this kind apart, by name.
        most: above this it is no measurement.
    """

    unit: str
    keys: Mapping[str, type]
    most: float = 1e6


_EXPERT = {"types": str, "hidden": int, "inner": int}
_TIER = {"experts": str, "threads": int}

KINDS: Mapping[str, Kind] = {
    "ram.read": Kind("GB/s", {"threads": int}),
    "disk.random": Kind("GB/s", {"bytes": int, "depth": int, "direct": bool}),
    "disk.sequential": Kind("GB/s", {"depth": int, "direct": bool}),
    "cpu.product": Kind("GB/s", {"type": str, "rows": int, "threads": int}),
    "cpu.expert": Kind("us", {**_EXPERT, "rows": int, "threads": int}, 1e9),
    "gpu.read": Kind("GB/s", {}),
    "gpu.copy": Kind("GB/s", {}),
    "gpu.products": Kind("TFLOPS", {}),
    "gpu.start": Kind("us", {}, 1e9),
    "gpu.replay": Kind("us", {}, 1e9),
    "gpu.expert": Kind("us", {**_EXPERT, "rows": int}, 1e9),
    "link.copy": Kind("GB/s", {"to": str}),
    "link.kernel": Kind("GB/s", {"to": str}),
    "link.expert": Kind("us", _EXPERT, 1e9),
    "model.window": Kind("us", {"rows": int}, 1e9),
    "model.misses": Kind("experts", {"rows": int}),
    "model.step": Kind("us", {}, 1e9),
    "tier.host": Kind("us", _TIER, 1e9),
    "tier.host_first": Kind("us", _TIER, 1e9),
    "tier.link": Kind("us", _TIER, 1e9),
    "tier.link_first": Kind("us", _TIER, 1e9),
}
"""All kinds of values by name; "to" is "gpu" or "ram", "types" are gate/up/down, "experts" is `use.described`'s."""

Key = str | int | bool


@dataclass(frozen=True, slots=True)
class Value:
    """One measurement: the median of some rounds, and how far they lay apart.

    Attributes:
        name: of its kind.
        median: of the rounds.
        least: of them.
        most: of them.
        rounds: how many.
        keys: what tells it apart from others of its kind, sorted by name.
    """

    name: str
    median: float
    least: float
    most: float
    rounds: int
    keys: tuple[tuple[str, Key], ...] = ()

    @property
    def unit(self) -> str:
        """Of the numbers."""
        return KINDS[self.name].unit

    def __getitem__(self, key: str) -> Any:
        return dict(self.keys)[key]

    def check(self) -> "Value":
        """The value itself.

        Raises:
            CalibrationError: it is no measurement of a kind that is known.
        """
        kind = KINDS.get(self.name)
        if kind is None:
            raise CalibrationError(f"{_short(self.name)} is nothing that is measured")
        keys = dict(self.keys)
        wrong = [key for key, of in kind.keys.items() if type(keys.get(key)) is not of]
        if wrong or set(keys) != set(kind.keys):
            raise CalibrationError(f"{self.name} is told apart by {', '.join(kind.keys) or 'nothing'}")
        if any(isinstance(key, str) and len(key) > TEXT for key in keys.values()):
            raise CalibrationError(f"a name in {self.name} is too long")
        numbers = (self.least, self.median, self.most)
        if not all(type(n) in {int, float} and math.isfinite(n) for n in numbers):
            raise CalibrationError(f"{self.name} has values that are no numbers")
        # Nothing measured is 0 but what a line leaves for its beginning, and misses of a window.
        least = 0.0 if self.name.endswith("_first") or self.name == "model.misses" else 1e-9
        if not least <= self.least <= self.median <= self.most <= kind.most:
            raise CalibrationError(f"{self.name} cannot be {self.median!r} ({self.least!r} to {self.most!r})")
        if type(self.rounds) is not int or not 1 <= self.rounds <= 1_000_000:
            raise CalibrationError(f"{self.name} has no number of rounds")
        return self


@dataclass(frozen=True, slots=True)
class Part:
    """Values that were measured together.

    Attributes:
        name: "ram", "disk", "cpu", "gpu", "link", "model" or "tier".
        about: which disk, card or model; empty where there is one only.
        when: the oldest value is from, local time with its zone, ISO 8601.
        quick: with fewer and shorter rounds.
        values: what was found.
        problem: why something was not; empty if all was.
    """

    name: str
    about: str
    when: str
    quick: bool
    values: tuple[Value, ...]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Record:
    """Everything known of one machine.

    Attributes:
        machine: which.
        strata: version that measured.
        parts: at most one of each name and subject.
    """

    machine: Machine
    strata: str
    parts: tuple[Part, ...] = ()

    def part(self, name: str, about: str | None = None) -> Part | None:
        """A part; the newest of that name where nobody says which."""
        found = [part for part in self.parts if part.name == name and about in {None, part.about}]
        return max(found, key=lambda part: datetime.fromisoformat(part.when)) if found else None

    def find(self, name: str, about: str | None = None, **keys: Key) -> list[Value]:
        """Values of a kind whose keys are as given."""
        part = self.part(name.partition(".")[0], about)
        if part is None:
            return []
        wanted = set(keys.items())
        return [value for value in part.values if value.name == name and wanted <= set(value.keys)]

    def with_part(self, new: Part) -> "Record":
        """The record with a part; values that it did not measure anew are kept from the one before."""
        before = next((part for part in self.parts if (part.name, part.about) == (new.name, new.about)), None)
        others = tuple(part for part in self.parts if part is not before)
        if before is not None:
            known = {(value.name, value.keys) for value in new.values}
            kept = tuple(value for value in before.values if (value.name, value.keys) not in known)
            if kept:  # as old as the oldest of them
                new = replace(before, problem=new.problem, quick=new.quick or before.quick, values=(*new.values, *kept))
        return replace(self, parts=(*others, new))

    def as_json(self) -> dict[str, Any]:
        """For a file."""
        return {
            "machine": asdict(self.machine) | {"gpus": [list(card) for card in self.machine.gpus]},
            "strata": self.strata,
            "parts": [
                {
                    "name": part.name, "about": part.about, "when": part.when, "quick": part.quick,
                    "problem": part.problem, "values": [_as_json(value) for value in part.values],
                }
                for part in self.parts
            ],
        }  # fmt: skip

    @classmethod
    def from_json(cls, body: Any) -> "Record":
        """From a file.

        Raises:
            CalibrationError: it is no record.
        """
        try:
            machine, parts = body["machine"], body["parts"]
            if sum(len(part["values"]) for part in parts) > MOST_VALUES:
                raise CalibrationError(f"it has more than {MOST_VALUES} values")
            return cls(_machine(machine), _text(body["strata"]), tuple(_part(part) for part in parts))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CalibrationError(f"something is missing or of another kind ({_short(str(error))})") from error


def _as_json(value: Value) -> dict[str, Any]:
    numbers = {"median": value.median, "least": value.least, "most": value.most, "rounds": value.rounds}
    return {"name": value.name, **dict(value.keys), "unit": value.unit, **numbers}


def _machine(found: Any) -> Machine:
    cores, threads, memory = (found[name] for name in ("cores", "threads", "memory"))
    if not all(type(n) is int and n > 0 for n in (cores, threads, memory)):
        raise CalibrationError("the machine it is of is not described")
    cards = tuple((_text(name), _text(driver)) for name, driver in found["gpus"])
    return Machine(_text(found["cpu"]), cores, threads, memory, cards)


def _part(found: Any) -> Part:
    if type(found["quick"]) is not bool:
        raise CalibrationError("a part does not say whether it was quick")
    when = _text(found["when"])
    if datetime.fromisoformat(when).tzinfo is None:
        raise CalibrationError(f"{when} is no time with a zone")
    values = tuple(_value(value) for value in found["values"])
    name = _text(found["name"])
    if any(value.name.partition(".")[0] != name for value in values):
        raise CalibrationError(f"part {name} holds values of another one")
    return Part(name, _text(found["about"]), when, found["quick"], values, _text(found["problem"]))


def _value(found: Any) -> Value:
    kind = KINDS.get(_text(found["name"]))
    if kind is None:
        raise CalibrationError(f"{_short(found['name'])} is nothing that is measured")
    keys = tuple(sorted((key, found[key]) for key in kind.keys))
    return Value(found["name"], found["median"], found["least"], found["most"], found["rounds"], keys).check()


def _text(found: Any) -> str:
    if not isinstance(found, str) or len(found) > 5 * TEXT:
        raise CalibrationError(f"{_short(str(found))} is no text")
    return found


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}..."
