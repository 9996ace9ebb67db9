"""Tool calls by grammar: what random walks through it make is read back as calls that fit their schemas."""

import json

import numpy as np
import pytest

from strata.errors import RequestError
from strata.text import OutputParser, Tokenizer, ToolCallArguments, ToolCallEnd, ToolCallStart
from strata.text.grammar import Grammar, Grammars, calls_grammar
from support.vocab import vocabulary_metadata

TOKENIZER = Tokenizer.from_metadata(vocabulary_metadata())
V = TOKENIZER.size
GRAMMARS = Grammars(TOKENIZER, V)
THOUGHT = TOKENIZER.id_of("</think>")
TOOLS = [
    {
        "name": "get_w",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer", "minimum": 0, "maximum": 9},
                "unit": {"enum": ["C", "F"]},
                "near": {"$ref": "#/$defs/flag"},
            },
            "required": ["city", "unit"],
            "$defs": {"flag": {"type": "boolean"}},
        },
    },
    {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}},
    {"name": "open", "parameters": {"type": "object"}},
]


CLOSER = TOKENIZER.encode("\n</parameter>\n")  # by chance alone, no free text would ever end


def walk(constraint, chance, most=200):
    """Random tokens that are allowed; ends where the turn may end."""
    ids, spelling = [], []
    for _ in range(most):
        mask = constraint.allowed()
        ends = [token for token in TOKENIZER.eos_ids if mask[token]]
        if constraint.finished or (ends and chance.random() < 0.5):
            return ids
        if not spelling and chance.random() < 0.3:
            spelling = list(CLOSER)
        choices = [token for token in np.flatnonzero(mask) if token not in TOKENIZER.eos_ids]
        if spelling and not mask[spelling[0]]:
            spelling = []
        token = spelling.pop(0) if spelling else int(chance.choice(choices))
        ids.append(token)
        constraint.advance(token)
    return None


def calls_of(text, tools=TOOLS):
    parser = OutputParser(tools, thinking=False)
    deltas = [*parser.push(text), *parser.finish()]
    names = [delta.name for delta in deltas if isinstance(delta, ToolCallStart)]
    arguments = [""] * len(names)
    for delta in deltas:
        if isinstance(delta, ToolCallArguments):
            arguments[delta.index] += delta.json_fragment
    ended = sum(isinstance(delta, ToolCallEnd) for delta in deltas)
    others = [delta for delta in deltas if not isinstance(delta, ToolCallStart | ToolCallArguments | ToolCallEnd)]
    return list(zip(names, map(json.loads, arguments), strict=True)), ended, others


def check(name, values):
    if name == "get_w":
        assert {"city", "unit"} <= set(values) <= {"city", "days", "unit", "near"}
        assert isinstance(values["city"], str)
        assert values["unit"] in {"C", "F"}
        assert "days" not in values or values["days"] in range(10)
        assert "near" not in values or isinstance(values["near"], bool)
    elif name == "now":
        assert values == {}
    else:
        assert name == "open"


def spoken(ids):
    return b"".join(TOKENIZER.token_bytes(token) for token in ids).decode("utf-8", "replace")


@pytest.mark.parametrize("only", [None, "get_w", "now"])
@pytest.mark.parametrize("parallel", [False, True])
def test_whatever_is_allowed_is_a_call_that_fits(only, parallel) -> None:
    chance = np.random.default_rng(3)
    found = 0
    for _ in range(10):
        constraint = GRAMMARS.constraint(None, calls=calls_grammar(TOOLS, TOKENIZER, only=only, parallel=parallel))
        ids = walk(constraint, chance)
        if ids is None:
            continue
        calls, ended, others = calls_of(spoken(ids))
        assert ended == len(calls) >= 1
        assert not others
        assert parallel or len(calls) == 1
        for name, values in calls:
            assert only in {None, name}
            check(name, values)
        found += 1
    assert found > 5


@pytest.mark.parametrize("city", ["Rome", "see </parameter>, and\n</function>", "a\n\nb\n", "", "<parameter=x>\n1"])
def test_a_call_as_the_template_writes_it_is_allowed(city) -> None:
    inner = f"<parameter=city>\n{city}\n</parameter>\n<parameter=unit>\nC\n</parameter>\n"
    text = f"<tool_call>\n<function=get_w>\n{inner}</function>\n</tool_call>"
    constraint = GRAMMARS.constraint(None, calls=calls_grammar(TOOLS, TOKENIZER))
    for token in TOKENIZER.encode(text):
        assert constraint.allowed()[token]
        constraint.advance(token)
    assert constraint.allowed()[TOKENIZER.eos_ids[0]]
    assert calls_of(text)[0] == [("get_w", {"city": city, "unit": "C"})]


@pytest.mark.parametrize("text", [
    "prose", "<tool_call>\n<function=other>", "<tool_call>\n<function=get_w>\n</function>",
    "<tool_call>\n<function=get_w>\n<parameter=days>", "<tool_call>\n<function=now>\n<parameter=x>",
], ids=str)  # fmt: skip
def test_anything_else_is_not(text) -> None:
    constraint = GRAMMARS.constraint(None, calls=calls_grammar(TOOLS, TOKENIZER))
    for token in TOKENIZER.encode(text):
        if not constraint.allowed()[token]:
            return
        constraint.advance(token)
    raise AssertionError("all of it was allowed")


def test_the_form_or_a_call_behind_the_thinking() -> None:
    form = Grammar.of({"type": "json_object"})
    calls = calls_grammar(TOOLS, TOKENIZER)
    opener = TOKENIZER.id_of("<tool_call>")
    for behind in ('\n\n{"a": 1}', "<tool_call>\n<function=now>\n</function>\n</tool_call>"):
        constraint = GRAMMARS.constraint(form, after=THOUGHT, calls=calls)
        for token in TOKENIZER.encode("thinking"):
            assert not constraint.allowed()[opener], "no call before the thinking has ended"
            constraint.advance(token)
        for token in TOKENIZER.encode("</think>" + behind):
            assert constraint.allowed()[token]
            constraint.advance(token)
        assert constraint.allowed()[TOKENIZER.eos_ids[0]]
    plain = GRAMMARS.constraint(form, after=THOUGHT)
    assert plain.allowed()[opener], "without tools a tag is text"


def test_a_sloppy_schema_takes_any_json() -> None:
    sloppy = [
        {
            "name": "f",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "float"}, "b": {"type": "array", "items": {"$ref": "http://x/y"}}},
            },
        }
    ]
    constraint = GRAMMARS.constraint(None, calls=calls_grammar(sloppy, TOKENIZER))
    for token in TOKENIZER.encode(
        "<tool_call>\n<function=f>\n<parameter=b>\n[1, 2]\n</parameter>\n</function>\n</tool_call>"
    ):
        assert constraint.allowed()[token]
        constraint.advance(token)


def test_nothing_to_call_is_refused() -> None:
    for tools, only in (([], None), (TOOLS, "other")):
        with pytest.raises(RequestError, match="no tool is declared"):
            calls_grammar(tools, TOKENIZER, only=only)
