"""A parameter's text as JSON, by its schema."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata.text.output.coerce import to_json
from strata.text.output.schema import kinds, read_tools

INTEGER, NUMBER, BOOLEAN, STRING = ({"type": kind} for kind in ("integer", "number", "boolean", "string"))
OBJECT, ARRAY, NULL = ({"type": kind} for kind in ("object", "array", "null"))
ITEMS = {"type": "array", "items": INTEGER}
POINT = {"type": "object", "properties": {"x": NUMBER, "label": STRING, "on": BOOLEAN, "n": INTEGER}}
ROOT = {
    "$defs": {
        "point": POINT,
        "again": {"$ref": "#/$defs/point"},
        "loop": {"$ref": "#/$defs/loop"},
        "tree": {"type": "object", "properties": {"size": INTEGER, "next": {"$ref": "#/$defs/tree"}}},
        "a/b~c": INTEGER,
        "list": [STRING, INTEGER],
    }
}

CASES = [
    # Strings stay what they are (C03).
    (STRING, "00501", "00501"), (STRING, "true", "true"), (STRING, "null", "null"), (STRING, "1e9", "1e9"),
    (STRING, '"quoted"', '"quoted"'), (STRING, " x ", " x "), (STRING, "", ""), (STRING, '{"a": 1}', '{"a": 1}'),
    # Integers.
    (INTEGER, "3", 3), (INTEGER, "4.0", 4), (INTEGER, " -7\n", -7), (INTEGER, "+5", 5), (INTEGER, "007", 7),
    (INTEGER, "-0", 0),
    (INTEGER, "1e3", 1000), (INTEGER, "12345678901234567890123", 12345678901234567890123), (INTEGER, "4.", 4),
    (INTEGER, "4.5", "4.5"), (INTEGER, "four", "four"), (INTEGER, "", ""), (INTEGER, "1_000", "1_000"),
    (INTEGER, "٣", "٣"),
    (INTEGER, "1e999999999", "1e999999999"), (INTEGER, "true", "true"), (INTEGER, "NaN", "NaN"),
    (INTEGER, "0x10", "0x10"),
    # Numbers.
    (NUMBER, "3", 3), (NUMBER, "3.50", 3.5), (NUMBER, ".5", 0.5), (NUMBER, "1e-3", 0.001), (NUMBER, "-2.", -2),
    (NUMBER, "+1.5", 1.5),
    (NUMBER, "1e999", "1e999"), (NUMBER, "inf", "inf"), (NUMBER, "nan", "nan"), (NUMBER, "1,5", "1,5"),
    (NUMBER, "00501", 501),
    # Booleans and null.
    (BOOLEAN, "True", True), (BOOLEAN, "true", True), (BOOLEAN, "FALSE", False), (BOOLEAN, "yes", "yes"),
    (BOOLEAN, "1", "1"),
    (NULL, "null", None), (NULL, "None", None), (NULL, "x", "x"),
    # Arrays and objects, with their members typed.
    (ARRAY, '["a", "b"]', ["a", "b"]), (ARRAY, " [ ] ", []), (ARRAY, "a, b", "a, b"), (ARRAY, '{"a": 1}', '{"a": 1}'),
    (ARRAY, "[1, 2", "[1, 2"), (ARRAY, "[NaN]", "[NaN]"), (ARRAY, "[1e999]", "[1e999]"),
    (ARRAY, "[" * 10**5, "[" * 10**5),
    (ITEMS, '["1", 2.0, "x", 2.5]', [1, 2, "x", 2.5]),
    (OBJECT, '{"a": {"b": [true, null]}}', {"a": {"b": [True, None]}}), (OBJECT, "[1]", "[1]"), (OBJECT, "", ""),
    (POINT, '{"x": "1.5", "label": 501, "on": "True", "n": 4.0}', {"x": 1.5, "label": "501", "on": True, "n": 4}),
    (POINT, '{"x": 1, "other": "1"}', {"x": 1, "other": "1"}),
    ({"type": "object", "additionalProperties": INTEGER}, '{"a": "1"}', {"a": 1}),
    ({"type": "array", "prefixItems": [STRING, INTEGER], "items": BOOLEAN}, '[1, "2", "true"]', ["1", 2, True]),
    (INTEGER, "1e300", "1e300"), (INTEGER, "9e15", 9 * 10**15),
    # Alternatives: strict where a string is possible.
    ({"anyOf": [INTEGER, STRING]}, "00501", "00501"), ({"anyOf": [INTEGER, STRING]}, "501", 501),
    ({"oneOf": [STRING, BOOLEAN]}, "True", "True"),
    ({"oneOf": [STRING, BOOLEAN]}, "true", True), ({"type": ["string", "null"]}, "null", None),
    ({"type": ["string", "null"]}, "None", "None"),
    ({"type": ["integer", "null"]}, "None", None), ({"type": ["integer", "null"]}, "4.0", 4),
    ({"type": "integer", "nullable": True}, "null", None),
    ({"anyOf": [INTEGER, NUMBER]}, "2.5", 2.5), ({"anyOf": [NULL, POINT]}, '{"n": "4"}', {"n": 4}),
    ({"anyOf": [STRING, ARRAY]}, '["a"]', ["a"]),
    ({"anyOf": [STRING, ARRAY]}, "[draft] text", "[draft] text"), ({"anyOf": [STRING, NUMBER]}, "9" * 65, "9" * 65),
    ({"anyOf": [STRING, NUMBER]}, "9" * 64, 10**64 - 1),
    ({"anyOf": [STRING, ARRAY]}, json.dumps(["x" * 70]), ["x" * 70]), ({"anyOf": [INTEGER, {}]}, "5", 5),
    ({"anyOf": [NULL, {}]}, "null", None), ({"anyOf": [NULL, {}]}, "[1]", [1]), ({"anyOf": [NULL, {}]}, "5", "5"),
    ({"allOf": [INTEGER]}, "4", 4), ({"allOf": [{"type": ["string", "integer"]}, INTEGER]}, "5.0", 5),
    ({"allOf": [{"description": "x"}, BOOLEAN]}, "true", True),
    ({"anyOf": [STRING, {}]}, "5", "5"),
    # Enumerations.
    ({"enum": ["a", "b"]}, "a", "a"), ({"enum": ["a", "b"]}, " b\n", "b"), ({"enum": [1, 2]}, "2", 2),
    ({"enum": [1, "1"]}, "1", "1"),
    ({"enum": [True, None]}, "True", True), ({"enum": [True, None]}, "null", None), ({"const": 5}, "5.0", 5),
    ({"enum": [1, 2]}, "3", 3),
    ({"type": "string", "enum": ["5"]}, "5", "5"), ({"type": "string", "enum": ["x"]}, "null", "null"),
    ({"enum": [[1], {"a": 1}]}, "[1]", [1]),
    # References.
    ({"$ref": "#/$defs/point"}, '{"n": "4"}', {"n": 4}), ({"$ref": "#/$defs/again"}, '{"n": "4"}', {"n": 4}),
    ({"$ref": "#/$defs/a~1b~0c"}, "4", 4),
    ({"$ref": "#/$defs/list/1"}, "4", 4), ({"$ref": "#/$defs/loop"}, "4", "4"), ({"$ref": "#/$defs/none"}, "4", "4"),
    ({"$ref": "http://x/y"}, "4", "4"),
    ({"$ref": "#/$defs/tree"}, '{"next": {"next": {"size": "3"}}}', {"next": {"next": {"size": 3}}}),
    ({"allOf": [{"$ref": "#/$defs/point"}]}, '{"n": "4"}', {"n": 4}),
    # Types that are only implied, and none at all.
    ({"properties": {"n": INTEGER}}, '{"n": "4"}', {"n": 4}), ({"items": INTEGER}, '["4"]', [4]), ({}, "5", "5"),
    ({}, "true", "true"), ({}, "00501", "00501"),
    ({}, '{"a": 1}', {"a": 1}), ({}, "[1]", [1]), ({}, "[1", "[1"), (True, "5", "5"), (None, "5", "5"),
    ("odd", "5", "5"), ({"type": 7}, "5", "5"),
]  # fmt: skip

# A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize(("schema", "text", "expected"), CASES, ids=lambda value: str(value)[:60])
def test_text_becomes_the_declared_type(schema: object, text: str, expected: object) -> None:
    value = json.loads(to_json(text, schema, ROOT))
    assert value == expected
    assert type(value) is type(expected)  # True is not 1, and 4 is not 4.0
    assert repr(value) == repr(expected)


@settings(PATIENT)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        st.lists,
        max_leaves=8,
    )
)
def test_values_come_back_from_their_own_json(value: object) -> None:
    kind = {bool: BOOLEAN, int: INTEGER, float: NUMBER, list: ARRAY, type(None): NULL}.get(type(value))
    if kind is not None:
        text = json.dumps(value, ensure_ascii=False)
        assert json.loads(to_json(text, kind, {})) == value


@settings(PATIENT)
@given(st.text(), st.sampled_from([case[0] for case in CASES]))
def test_any_text_becomes_json_and_nothing_is_lost(text: str, schema: object) -> None:
    written = to_json(text, schema, ROOT)
    value = json.loads(written, parse_constant=pytest.fail)
    if isinstance(value, str):
        assert value in {text, text.strip()}


def test_numbers_keep_the_digits_that_were_written() -> None:
    assert to_json("0.10", NUMBER, {}) == "0.10"
    assert to_json("12345678901234567890.5", NUMBER, {}) == "12345678901234567890.5"
    assert to_json("9" * 6000, INTEGER, {}) == "9" * 6000


def test_a_schema_that_points_at_itself_is_read_in_time() -> None:
    knot = {"anyOf": [{"$ref": "#"}, {"$ref": "#"}, STRING]}
    assert "string" in kinds(knot, knot)
    assert json.loads(to_json("x", knot, knot)) == "x"
    (tool,) = read_tools([{"name": "f", "parameters": knot}]).values()
    assert tool.properties == {}


def test_which_parameters_a_tool_accepts() -> None:
    def accepts(schema: dict[str, object]) -> tuple[bool, bool]:
        (tool,) = read_tools([{"name": "f", "parameters": schema}]).values()
        return tool.accepts("a"), tool.accepts("z")

    one = {"a": STRING}
    assert accepts({"properties": one}) == (True, False)
    assert accepts({"properties": one, "additionalProperties": False}) == (True, False)
    assert accepts({"properties": one, "additionalProperties": True}) == (True, True)
    assert accepts({"properties": one, "additionalProperties": INTEGER}) == (True, True)
    assert accepts({"properties": one, "patternProperties": {"^z": {}}}) == (True, True)
    assert accepts({"allOf": [{"properties": one}]}) == (True, False)
    assert accepts({"$ref": "#/$defs/p", "$defs": {"p": {"properties": one}}}) == (True, False)
    assert accepts({}) == accepts({"properties": {}}) == (True, True)
    assert accepts({"additionalProperties": False}) == (False, False)
