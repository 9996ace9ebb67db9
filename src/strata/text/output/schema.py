"""JSON schemas of tool parameters: which types a value may have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from strata.text.tools import normalise_tools

_MOST_HOPS = 32  # of references and nested alternatives; a schema may point at itself

Kinds = frozenset[str]

UNTYPED: Kinds = frozenset({"object", "array", "string"})
"""What a value may be that no schema describes. An object or array can only be meant as one; whether ``5`` or ``true``
is meant as a string nobody can tell from the text, so it stays as it is."""


@dataclass(frozen=True)
class Tool:
    """A declared tool.

    Attributes:
        name: Name of the function.
        parameters: Its JSON schema; references in it are looked up from here.
        properties: Schema by parameter name.
        closed: Whether only declared parameters are legal. True if some are declared and the schema does not allow
            others in so many words.
    """

    name: str
    parameters: Mapping[str, Any] = field(default_factory=dict)
    properties: Mapping[str, Any] = field(default_factory=dict)
    closed: bool = False

    def schema_of(self, parameter: str) -> Any:
        """The schema of a parameter; an empty one if nothing is said about it."""
        if parameter in self.properties:
            return self.properties[parameter]
        others = resolve(self.parameters, self.parameters).get("additionalProperties")
        return others if isinstance(others, Mapping) else {}

    def accepts(self, parameter: str) -> bool:
        """Whether a call may have this parameter."""
        return parameter in self.properties or not self.closed


def read_tools(tools: object) -> dict[str, Tool]:
    """Declared tools by name, from ``{"type": "function", "function": {...}}`` objects or bare functions.

    Raises:
        TextError: A tool has the wrong shape.
    """
    declared: dict[str, Tool] = {}
    for tool in normalise_tools(tools):
        function = tool["function"]
        schema = function.get("parameters") or {}
        properties = _properties(schema, schema, _MOST_HOPS, _Budget())
        plain = resolve(schema, schema)
        others = plain.get("additionalProperties")
        open_ended = bool(others) or "patternProperties" in plain
        closed = bool(properties or others is False) and not open_ended
        declared[function["name"]] = Tool(function["name"], schema, properties, closed=closed)
    return declared


def resolve(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema itself, with local references (``#/$defs/...``) followed; empty if there is none."""
    for _ in range(_MOST_HOPS):
        if not isinstance(schema, Mapping):
            return {}
        pointer = schema.get("$ref")
        if pointer is None:
            return schema
        schema = _at(pointer, root)
    return {}


def kinds(schema: Any, root: Mapping[str, Any]) -> Kinds:
    """The JSON types that a value may have, or `UNTYPED` if the schema does not say."""
    found = _kinds(schema, root, _MOST_HOPS, _Budget())
    return UNTYPED if found is None else found


def kind_of(value: Any) -> str:
    """The JSON type of a decoded value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def choices(schema: Any, root: Mapping[str, Any]) -> list[Any] | None:
    """The values of ``enum`` or ``const``; None if the schema has neither."""
    plain = resolve(schema, root)
    if "const" in plain:
        return [plain["const"]]
    listed = plain.get("enum")
    return listed if isinstance(listed, list) and listed else None


def branch_for(value_kind: str, schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a schema that speaks of objects or arrays: itself, or its only alternative of that type."""
    plain = resolve(schema, root)
    for _ in range(_MOST_HOPS):
        alternatives = [
            branch
            for word in ("anyOf", "oneOf", "allOf")
            for branch in _branches(plain, word)
            if value_kind in kinds(branch, root)
        ]
        if "properties" in plain or "items" in plain or len(alternatives) != 1:
            return plain
        plain = resolve(alternatives[0], root)
    return {}


class _Budget:
    """Counts the parts of a schema that are looked at: references can make a short schema endless or enormous."""

    def __init__(self) -> None:
        self.left = 1000

    def spend(self) -> bool:
        """Whether one more part may be looked at."""
        self.left -= 1
        return self.left >= 0


def _kinds(schema: Any, root: Mapping[str, Any], hops: int, budget: _Budget) -> Kinds | None:
    plain = resolve(schema, root)
    if hops == 0 or not budget.spend():
        return None
    found = _own_kinds(plain)
    for word in ("anyOf", "oneOf"):
        branches = _branches(plain, word)
        if branches:
            found = _both(found, _either([_kinds(branch, root, hops - 1, budget) for branch in branches]))
    for branch in _branches(plain, "allOf"):
        found = _both(found, _kinds(branch, root, hops - 1, budget))
    if found is not None and plain.get("nullable") is True:
        found |= {"null"}
    return found


def _branches(plain: Mapping[str, Any], word: str) -> list[Any]:
    found = plain.get(word)
    return found if isinstance(found, list) else []


def _own_kinds(plain: Mapping[str, Any]) -> Kinds | None:
    declared = plain.get("type")
    if isinstance(declared, str):
        return frozenset({declared})
    if isinstance(declared, list):
        return frozenset(kind for kind in declared if isinstance(kind, str))
    listed = choices(plain, {})
    if listed is not None:
        return frozenset(kind_of(value) for value in listed)
    if "properties" in plain:
        return frozenset({"object"})
    return frozenset({"array"}) if "items" in plain or "prefixItems" in plain else None


def _either(parts: list[Kinds | None]) -> Kinds | None:
    """Any of the alternatives; None if none of them says anything."""
    if all(part is None for part in parts):
        return None
    return frozenset[str]().union(*(UNTYPED if part is None else part for part in parts))


def _both(left: Kinds | None, right: Kinds | None) -> Kinds | None:
    if left is None or right is None:
        return left if right is None else right
    return left & right or left


def _properties(schema: Any, root: Mapping[str, Any], hops: int, budget: _Budget) -> dict[str, Any]:
    plain = resolve(schema, root)
    found: dict[str, Any] = {}
    if hops == 0 or not budget.spend():
        return found
    for word in ("allOf", "anyOf", "oneOf"):
        for branch in _branches(plain, word):
            found |= _properties(branch, root, hops - 1, budget)
    own = plain.get("properties")
    return found | dict(own) if isinstance(own, Mapping) else found


def _at(pointer: object, root: Mapping[str, Any]) -> Any:
    """What a JSON pointer in this document points at; None if it points elsewhere."""
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        return None
    place: Any = root
    for step in pointer.removeprefix("#").split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        elif isinstance(place, Mapping) and name in place:
            place = place[name]
        else:
            return None
    return place
