"""The form that an answer must have, in every client's spelling, as `strata.text.grammar.Grammar.of` reads it."""

import json
import re
from collections.abc import Mapping
from typing import Any

from strata.server.errors import bad
from strata.server.fields import Fields, shown

_TYPES = {"string", "number", "integer", "boolean", "null", "array", "object"}
_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")


_PARTS = 50_000
"""Of a schema; the largest that can be compiled in time has some thousands."""


def read_form(fields: Fields) -> dict[str, Any] | None:
    """The one form that a request asks for; None for none.

    Raises:
        ApiError: it asks for several, or for one that makes no sense.
    """
    found: list[tuple[str, dict[str, Any]]] = []
    given = fields.any("response_format")
    if given is not None:
        found.append(("response_format", _of_response_format(given)))
    for name in ("json_schema", "guided_json"):
        schema = fields.any(name)
        if schema is not None:
            found.append((name, of_schema(_decoded(schema, name), name)))
    for name, kind in (("grammar", "gbnf"), ("guided_grammar", "lark"), ("guided_regex", "regex")):
        text = fields.text(name)
        if text:
            found.append((name, {"type": kind, kind: text}))
    choice = fields.items("guided_choice")
    if choice is not None:
        found.append(("guided_choice", _of_choice(choice, "guided_choice")))
    structured = fields.object("structured_outputs")
    if structured is not None:
        found += _of_structured(structured)
    forms = [(name, form) for name, form in found if form["type"] != "text"]
    if len(forms) > 1:
        raise bad(
            f"{forms[0][0]} and {forms[1][0]} both say what the answer looks like; leave one of them out", forms[1][0]
        )
    return forms[0][1] if forms else None


def of_schema(schema: Any, name: str) -> dict[str, Any]:
    """A form from a JSON schema, whose places are checked, so that an error can name one.

    Raises:
        ApiError: names the place in the schema.
    """
    if schema is True:
        schema = {}
    if not isinstance(schema, Mapping):
        raise bad(f"{name} must be a JSON schema, an object, not {shown(schema)}", name)
    check_schema(schema, name)
    return {"type": "json_schema", "json_schema": {"schema": schema}}


def check_schema(schema: Any, where: str) -> None:
    """Refuse types that are none and references that lead elsewhere; nothing is fetched.

    Raises:
        ApiError: names the place.
    """
    waiting = [(schema, where)]
    for _ in range(_PARTS):
        if not waiting:
            return
        part, place = waiting.pop()
        if not isinstance(part, Mapping):
            continue
        kinds = part.get("type")
        for kind in kinds if isinstance(kinds, list) else [] if kinds is None else [kinds]:
            if not isinstance(kind, str) or kind not in _TYPES:
                raise bad(f"{place}.type is {shown(kind)}; expected one of {', '.join(sorted(_TYPES))}", place)
        pointer = part.get("$ref")
        if pointer is not None and not (isinstance(pointer, str) and pointer.startswith("#")):
            raise bad(
                f"{place}.$ref is {shown(pointer)}; only references inside the schema (#/...) are followed", place
            )
        waiting += _inside(part, place)
    raise bad(f"{where} has more than {_PARTS} parts, too many for the form of an answer", where)


def _inside(part: Mapping[str, Any], place: str) -> list[tuple[Any, str]]:
    """The schemas in a schema, each with its place."""
    found: list[tuple[Any, str]] = []
    for key in _SCHEMAS:
        inner = part.get(key)
        if isinstance(inner, Mapping):
            found += [(value, f"{place}.{key}.{name}") for name, value in inner.items()]
    for key in _LISTED:
        listed = part.get(key)
        if isinstance(listed, list):
            found += [(value, f"{place}.{key}[{number}]") for number, value in enumerate(listed)]
    return found + [(part[key], f"{place}.{key}") for key in _SINGLE if key in part]


def _of_response_format(value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise bad('response_format must be an object with "type"', "response_format")
    kind = value["type"]
    if kind == "text":
        return {"type": "text"}
    if kind == "json_object":
        schema = value.get("schema")
        return {"type": "json_object"} if schema is None else of_schema(schema, "response_format.schema")
    if kind == "json_schema":
        described = value.get("json_schema", value)
        if not isinstance(described, Mapping) or "schema" not in described:
            raise bad("response_format.json_schema must be an object with the schema as its schema", "response_format")
        return of_schema(described["schema"], "response_format.json_schema.schema")
    if kind in {"regex", "lark", "gbnf", "grammar"}:
        text = value.get(kind, value.get("grammar", value.get("pattern")))
        kind = "gbnf" if kind == "grammar" else kind
        if isinstance(text, str) and text:
            return {"type": kind, kind: text}
        raise bad(f"response_format.{kind} must be a text that is not empty", "response_format")
    raise bad(
        f"response_format.type must be text, json_object, json_schema, regex, lark or gbnf, not {shown(kind)}",
        "response_format",
    )


def _of_structured(structured: Fields) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    schema = structured.any("json")
    if schema is not None:
        found.append(("structured_outputs.json", of_schema(_decoded(schema, "json"), "structured_outputs.json")))
    if structured.flag("json_object"):
        found.append(("structured_outputs.json_object", {"type": "json_object"}))
    for name, kind in (("regex", "regex"), ("grammar", "lark")):
        text = structured.text(name)
        if text:
            found.append((f"structured_outputs.{name}", {"type": kind, kind: text}))
    choice = structured.items("choice")
    if choice is not None:
        found.append(("structured_outputs.choice", _of_choice(choice, "structured_outputs.choice")))
    structured.end()
    return found


def _of_choice(choice: list[Any], name: str) -> dict[str, Any]:
    if not choice or not all(isinstance(text, str) and text for text in choice):
        raise bad(f"{name} must be a list of texts, and not empty", name)
    return {"type": "regex", "regex": "|".join(re.escape(text) for text in choice)}


def _decoded(schema: Any, name: str) -> Any:
    """A schema that some clients send as text."""
    if not isinstance(schema, str):
        return schema
    try:
        return json.loads(schema)
    except (ValueError, RecursionError):
        raise bad(f"{name} is a text, but no JSON", name) from None
