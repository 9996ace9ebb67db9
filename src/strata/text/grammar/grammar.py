"""What form an answer must have, as a request says it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from strata.errors import RequestError


class Kind(StrEnum):
    """How a grammar is written."""

    JSON_OBJECT = "json_object"  # any JSON object
    JSON_SCHEMA = "json_schema"  # JSON that a schema accepts
    REGEX = "regex"  # the whole answer matches a regular expression (Rust's syntax, without look-around)
    LARK = "lark"  # llguidance's dialect of Lark
    GBNF = "gbnf"  # llama.cpp's format


@dataclass(frozen=True, slots=True)
class Grammar:
    """A form of answers, not yet checked: `Grammars.constraint` does that for a vocabulary.

    Attributes:
        kind: how it is written.
        source: the schema as JSON, or the text of the expression or grammar; empty for any JSON object.
    """

    kind: Kind
    source: str = ""

    @classmethod
    def of(cls, value: Any) -> "Self | None":
        """Read what a request gives, in the form of OpenAI's ``response_format``.

        ``{"type": "text"}`` and None mean no grammar, ``{"type": "json_object"}`` any JSON object, ``{"type":
        "json_schema", "json_schema": {"schema": {...}}}`` a schema; the last may hold name, description and strict as
        well, which change nothing. ``{"type": "regex", "regex": "..."}``, ``lark`` and ``gbnf`` go the same way.

        Raises:
            RequestError: it has another shape; the text names the place.
        """
        if value is None or isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise RequestError(f'grammar must be an object with "type", not {value!r}')
        named = value.get("type")
        if named == "text":
            _only(value, "type")
            return None
        if not isinstance(named, str) or named not in set(Kind):
            raise RequestError(f"grammar.type must be text, {', '.join(Kind)}, not {named!r}")
        kind = Kind(named)
        if kind is Kind.JSON_OBJECT:
            _only(value, "type")
            return cls(kind)
        _only(value, "type", kind)
        content = value.get(kind)
        if kind is Kind.JSON_SCHEMA:
            return cls(kind, _schema(content))
        if not isinstance(content, str) or not content:
            raise RequestError(f"grammar.{kind} must be a text that is not empty, not {content!r}")
        return cls(kind, content)


def _only(value: Mapping[str, Any], *known: str) -> None:
    unknown = next((key for key in value if key not in known), None)
    if unknown is not None:
        raise RequestError(f"grammar has an unknown key {unknown!r}; there are {', '.join(known)}")


def _schema(content: Any) -> str:
    if not isinstance(content, Mapping):
        raise RequestError(f'grammar.json_schema must be an object with "schema", not {content!r}')
    unknown = sorted(set(content) - {"schema", "name", "description", "strict"}, key=str)
    if unknown:
        raise RequestError(f"grammar.json_schema has an unknown key {unknown[0]!r}; the schema itself is its schema")
    schema = content.get("schema")
    if not isinstance(schema, Mapping):
        raise RequestError(f"grammar.json_schema.schema must be an object, not {schema!r}")
    try:
        return json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise RequestError(f"grammar.json_schema.schema is no JSON: {wrong}") from wrong
