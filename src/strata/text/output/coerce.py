"""The text of a parameter as JSON, by the type that the tool's schema declares.

The model writes strings raw and everything else as JSON (model specification, section 16, item 6), so the text alone
does not tell ``00501`` the number from ``00501`` the zip code: the schema does. A text that does not fit the declared
type is passed on as a string, for the tool to complain about; nothing is dropped or made up.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from strata.text.output.schema import Kinds, branch_for, choices, kind_of, kinds

LONGEST_SCALAR = 64
"""Where a string is allowed too, a longer text is taken for the string, so that it can be passed on as it comes."""

_JSON_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)(?:\.0*)?")
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HALF = re.compile("[\ud800-\udfff]")  # of a character, as the model has escaped it; no text can hold it
_MOST_EXACT = 2**53  # beyond it a float does not tell one integer from the next


def to_json(text: str, schema: Any, root: Mapping[str, Any]) -> str:
    """JSON of a parameter's text.

    Args:
        text: What stands between the tags.
        schema: The parameter's schema.
        root: The schema that references start from.
    """
    listed = choices(schema, root)
    if listed is not None:
        chosen = _choose(text, listed)
        if chosen is not None:
            return chosen
    allowed = kinds(schema, root)
    if surely_string(allowed, len(text), text.lstrip()[:1]):
        return _string(text)
    found = _scalar(text.strip(), allowed)
    if found is None:
        found = _container(text.strip(), allowed & {"object", "array"}, schema, root)
    return found if found is not None else _string(text)


def surely_string(allowed: Kinds, length: int, first: str) -> bool:
    """Whether a value can only be a string, whatever follows.

    Args:
        allowed: Types that the schema allows.
        length: Characters so far.
        first: The first of them that is not white space; empty if there is none yet.
    """
    if "string" not in allowed:
        return False
    if allowed == {"string"}:
        return True
    container = bool(allowed & {"object", "array"}) and first in {"{", "[", ""}
    return length > LONGEST_SCALAR and not container


def _string(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _choose(text: str, listed: list[Any]) -> str | None:
    """The member of an enumeration that a text names: exactly, without white space around, or as JSON."""
    for form in (text, text.strip()):
        if form in [value for value in listed if isinstance(value, str)]:
            return _string(form)
    for value in listed:
        written = json.dumps(value, ensure_ascii=False)
        if not isinstance(value, str) and written == (
            _scalar(text.strip(), frozenset({kind_of(value)})) or text.strip()
        ):
            return written
    return None


def _scalar(text: str, allowed: Kinds) -> str | None:
    """JSON of a null, boolean or number; strictly as JSON writes it where a string is allowed too."""
    strict = "string" in allowed
    for kind, read in _READERS.items():
        if kind in allowed:
            found = read(text, strict)
            if found is not None:
                return found
    return None


def _null(text: str, strict: bool) -> str | None:
    return "null" if text == "null" or (text == "None" and not strict) else None


def _boolean(text: str, strict: bool) -> str | None:
    word = text if strict else text.lower()
    return word if word in {"true", "false"} else None


def _integer(text: str, strict: bool) -> str | None:
    if strict:
        return text if _JSON_INTEGER.fullmatch(text) else None
    plain = _INTEGER.fullmatch(text)
    if plain:  # by characters: no limit on digits, nothing rounded
        return ("-" if plain[1] == "-" and plain[2] != "0" else "") + plain[2]
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text)
    return str(int(value)) if value.is_integer() and abs(value) <= _MOST_EXACT else None


def _number(text: str, strict: bool) -> str | None:
    if not (_JSON_NUMBER if strict else _NUMBER).fullmatch(text) or not math.isfinite(float(text)):
        return None
    if _JSON_NUMBER.fullmatch(text):
        return text  # digits as the model wrote them
    whole = _integer(text, strict=False)
    return whole if whole is not None else json.dumps(float(text))


_READERS: dict[str, Callable[[str, bool], str | None]] = {
    "null": _null,
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
}


def _container(text: str, allowed: Kinds, schema: Any, root: Mapping[str, Any]) -> str | None:
    """JSON of an object or array, with its members typed by their schemas."""
    if not allowed or not text.startswith(("{", "[")):
        return None
    try:
        value = json.loads(text)
        if kind_of(value) not in allowed:
            return None
        return _HALF.sub("\ufffd", json.dumps(_typed(value, schema, root), ensure_ascii=False, allow_nan=False))
    except (ValueError, RecursionError):  # not JSON, or NaN, or an endless nest of brackets
        return None


def _typed(value: Any, schema: Any, root: Mapping[str, Any]) -> Any:
    """A decoded value with members of the wrong type read again by their schema, where they fit it."""
    kind = kind_of(value)
    if kind == "object":
        part = branch_for("object", schema, root)
        declared, others = part.get("properties"), part.get("additionalProperties")
        members = declared if isinstance(declared, Mapping) else {}
        return {key: _typed(item, members.get(key, others), root) for key, item in value.items()}
    if kind == "array":
        part = branch_for("array", schema, root)
        listed = part.get("prefixItems")
        first = listed if isinstance(listed, list) else []
        return [
            _typed(item, first[place] if place < len(first) else part.get("items"), root)
            for place, item in enumerate(value)
        ]
    allowed = kinds(schema, root)
    if kind in allowed or (kind == "integer" and "number" in allowed):
        return value
    if kind != "string" and allowed == {"string"}:
        return json.dumps(value)
    found = _scalar(value.strip() if kind == "string" else json.dumps(value), allowed)
    return value if found is None else json.loads(found)
