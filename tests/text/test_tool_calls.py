"""Tool calls (group C of the public faults, as far as no server is needed)."""

import json
import re

import pytest

from strata.errors import TextError
from strata.text import OutputParser
from support.parsing import GET_W, NOW, WRITE, call_text, parse, parse_every_way, pieces

CLOSERS = "\n</parameter>\n</function>\n</tool_call>"

# C01: what a value may contain and still be one value.
VALUES = {
    "the reported text": "see </parameter>, </function></tool_call> and\n<parameter=q>\n7\n</parameter>\nfin",
    "one closing tag": "a </parameter> b",
    "a closing tag on its own line": "a\n</parameter>\nb",
    "an undeclared parameter": "a\n</parameter>\n<parameter=q>\n7\n</parameter>\nb",
    "a parameter that the call has already": "a\n</parameter>\n<parameter=path>\nx\n</parameter>\nb",
    "the whole end of a call, then text": "a" + CLOSERS + "\nmore text\nof the file",
    "the end of a call at the end": "a" + CLOSERS,
    "the end of a call twice": "a" + CLOSERS + CLOSERS + "\nb",
    "the end of a call on one line": "a</parameter></function></tool_call> b",
    "a call in it": "Example:\n" + call_text("write", path="x", content="y") + "\nend",
    "a call in it at the end": "Example:\n" + call_text("write", path="x", content="y"),
    "two calls in it": call_text("write", path="x") + "\n" + call_text("get_w", city="x") + "\nend",
    "a call without parameters in it": "Example: " + call_text("now") + "\nend",
    "a call of something undeclared in it": call_text("rm", path="/") + "\nend",
    "a call in a call": call_text("write", content=call_text("write", content="x")) + "\nend",
    "a function without its call": "<function=write>\n<parameter=path>\nx\n</parameter>\n</function>\nend",
    "openers": "<tool_call> and <function=write> and <parameter=path>",
    "think tags": "<think>\n</think>",
    "half tags": "</param </parameter <tool_call </function\n</tool",
    "only a newline": "\n",
    "newlines around": "\n\na\n\n",
    "nothing": "",
    "XML": "<a><b/></a>\n<parameter>\n</parameter>\n",
    "a control character": "a\x00\x1b\u2028b",
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_with_tags_in_it_stays_whole(name: str) -> None:
    turn = parse_every_way(call_text("write", path="p.txt", content=VALUES[name]), [WRITE, GET_W, NOW])
    assert turn.calls == [("write", {"path": "p.txt", "content": VALUES[name]})]
    assert (turn.content, turn.reasoning, turn.unfinished_call) == ("", "", False)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_with_tags_in_it_between_text_and_further_calls(name: str) -> None:
    text = "Here:\n\n" + call_text("write", path="p", content=VALUES[name]) + "\n" + call_text("get_w", city="Rome")
    turn = parse_every_way(text, [WRITE, GET_W])
    assert turn.calls == [("write", {"path": "p", "content": VALUES[name]}), ("get_w", {"city": "Rome"})]
    assert turn.content == "Here:"


@pytest.mark.parametrize(
    "path",
    [
        "a </parameter> <parameter=content> b",
        "a</parameter>\n<parameter=content>\nb",
        call_text("write", path="x", content="y"),
    ],
    ids=["on one line", "not at the start of a line", "in a call"],
)
def test_a_value_may_hold_the_tag_of_a_parameter_that_is_still_to_come(path: str) -> None:
    turn = parse_every_way(call_text("write", path=path, content="z"), [WRITE])
    assert turn.calls == [("write", {"path": path, "content": "z"})]


def test_text_after_calls_is_content() -> None:
    text = call_text("get_w", city="Rome") + "\n\nand then\n" + call_text("now") + "\nDone.\n"
    turn = parse_every_way(text, [GET_W, NOW])
    assert turn.calls == [("get_w", {"city": "Rome"}), ("now", {})]
    assert turn.content == "and thenDone.\n"


def test_half_an_end_of_a_call_after_a_call_is_content() -> None:
    for after in ("text </function></tool_call> more", "</parameter> text </function> </tool_call>", "</tool_call>"):
        turn = parse_every_way(call_text("get_w", city="Rome") + "\n" + after, [GET_W])
        assert turn.calls == [("get_w", {"city": "Rome"})]
        assert turn.content == after


def test_a_call_inside_an_unclosed_think_block_is_a_call() -> None:  # C02
    text = "I will look.\n\n" + call_text("get_w", city="Rome")
    turn = parse_every_way(text, [GET_W], thinking=True)
    assert turn.calls == [("get_w", {"city": "Rome"})]
    assert (turn.reasoning, turn.content, turn.reasoning_open) == ("I will look.", "", False)
    at_once = parse_every_way(call_text("get_w", city="Rome"), [GET_W], thinking=True)
    assert (at_once.calls, at_once.reasoning) == ([("get_w", {"city": "Rome"})], "")


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("tools", [None, [], [NOW]], ids=["none", "empty", "others"])
def test_a_call_of_something_undeclared_stays_text(tools: list[dict[str, object]] | None, *, thinking: bool) -> None:
    text = "I will look.\n\n" + call_text("get_w", city="Rome")
    turn = parse_every_way(text, tools, thinking=thinking)
    assert turn.calls == []
    assert (turn.reasoning if thinking else turn.content) == text
    assert (turn.content if thinking else turn.reasoning) == ""


def test_the_tools_list_may_hold_bare_functions_and_wrong_ones_are_refused() -> None:
    turn = parse_every_way(call_text("get_w", days="3"), [GET_W["function"]])
    assert turn.calls == [("get_w", {"days": 3})]
    for wrong in ([{"type": "function"}], [3], "x", [{"name": "f", "parameters": []}]):
        with pytest.raises(TextError, match="tools"):
            OutputParser(wrong, thinking=False)


def test_types_come_from_the_schema_and_not_from_the_text() -> None:  # C03
    turn = parse_every_way(call_text("get_w", zip="00501", city="true", days="4.0"), [GET_W])
    assert turn.calls == [("get_w", {"zip": "00501", "city": "true", "days": 4})]
    assert turn.arguments == ['{"zip": "00501", "city": "true", "days": 4}']


def test_numbers_booleans_and_arrays_are_no_strings() -> None:  # C04
    function = GET_W["function"]
    properties = function["parameters"]["properties"] | {"place": {"type": "object"}}
    tool = {"function": function | {"parameters": {"type": "object", "properties": properties}}}
    values = {"days": "3", "metric": "True", "tags": '["a","b"]', "place": '{"lat": 1.5, "name": "x"}'}
    turn = parse_every_way(call_text("get_w", **values), [tool])
    expected = {"days": 3, "metric": True, "tags": ["a", "b"], "place": {"lat": 1.5, "name": "x"}}
    assert turn.calls == [("get_w", expected)]


def test_a_call_without_parameters_has_an_empty_object() -> None:  # C06
    turn = parse_every_way("</think>\n\n" + call_text("now"), [NOW], thinking=True)
    assert turn.calls == [("now", {})]
    assert turn.arguments == ["{}"]
    assert turn.reasoning == turn.content == ""


def test_parallel_calls_are_numbered() -> None:  # C07: the numbering itself is checked by the helper
    text = "\n".join([call_text("get_w", city="Rome"), call_text("get_w", city="Oslo"), call_text("now")])
    turn = parse_every_way(text, [GET_W, NOW])
    assert turn.calls == [("get_w", {"city": "Rome"}), ("get_w", {"city": "Oslo"}), ("now", {})]


CALL = call_text("get_w", city="Rome or Oslo", days="3")


@pytest.mark.parametrize("length", range(1, len(CALL)))
def test_a_call_that_was_cut_is_never_complete(length: int) -> None:  # C09
    turn = parse_every_way(CALL[:length], [GET_W], cut=True)
    assert turn.calls == []
    assert turn.unfinished_call == (length >= len("<tool_call>"))
    assert turn.content == ("" if turn.unfinished_call else CALL[:length])


def test_a_cut_after_a_complete_call_leaves_it_complete() -> None:  # C09
    turn = parse_every_way(CALL, [GET_W], cut=True)
    assert turn.calls == [("get_w", {"city": "Rome or Oslo", "days": 3})]
    assert not turn.unfinished_call
    second = parse_every_way(CALL + "\n" + CALL[:60], [GET_W], cut=True)
    assert second.calls == turn.calls
    assert second.unfinished_call
    opened = parse_every_way(CALL + "\ntext\n<tool_call>\n<function=get_w>\n", [GET_W], cut=True)
    assert (opened.calls, opened.content, opened.unfinished_call) == (turn.calls, "text", True)


def test_a_missing_last_tag_is_forgiven_only_where_the_model_itself_stopped() -> None:
    text = CALL.removesuffix("\n</tool_call>")
    assert parse_every_way(text, [GET_W]).calls == [("get_w", {"city": "Rome or Oslo", "days": 3})]
    assert parse_every_way(text, [GET_W], cut=True).calls == []
    assert parse_every_way(call_text("now").removesuffix("\n</tool_call>") + "\nText.", [NOW]).content == "Text."


def test_a_tool_call_tag_in_prose_is_prose() -> None:
    for text in (
        "Use <tool_call> for it.",
        "Write <tool_call>\n<function= then",
        "<tool_call>",
        "a <tool_call>\n\n<tool_call> b",
    ):
        assert parse_every_way(text, [GET_W]).content == text
    text = "Tag: <tool_call>\n" + CALL
    turn = parse_every_way(text, [GET_W])
    assert (turn.content, len(turn.calls)) == ("Tag: <tool_call>", 1)


def test_looser_layouts_of_the_tags_are_understood() -> None:
    tight = "".join(CALL.replace("Rome or Oslo", "Rome").split("\n"))
    wide = CALL.replace("\n", "\n\n  ").replace("Rome or Oslo", "Rome")
    for text in (tight, tight.replace("</", "\n</")):
        assert parse_every_way(text, [GET_W]).calls == [("get_w", {"city": "Rome", "days": 3})]
    assert [name for name, _ in parse_every_way(wide, [GET_W]).calls] == ["get_w"]
    empty = "<tool_call>\n<function=get_w>\n<parameter=city>\n</parameter>\n</function>\n</tool_call>"
    assert parse_every_way(empty, [GET_W]).calls == [("get_w", {"city": ""})]
    then = empty.replace("</function>", "<parameter=days>\n3\n</parameter>\n</function>")
    assert parse_every_way(then, [GET_W]).calls == [("get_w", {"city": "", "days": 3})]


def test_parameters_beyond_the_declared_ones() -> None:
    # The first parameter cannot be anything else; a later one is text of the value unless the schema allows others.
    assert parse_every_way(call_text("get_w", where="Rome"), [GET_W]).calls == [("get_w", {"where": "Rome"})]
    assert parse_every_way(call_text("now", a="1", b="[2]"), [NOW]).calls == [("now", {"a": "1", "b": [2]})]
    for others, value in ((True, "5"), ({"type": "integer"}, 5)):
        schema = {"properties": {"a": {"type": "string"}}, "additionalProperties": others}
        tool = {"name": "f", "parameters": schema}
        assert parse_every_way(call_text("f", a="x", b="5"), [tool]).calls == [("f", {"a": "x", "b": value})]


def test_arguments_with_quotes_and_backslashes_survive_every_cut() -> None:  # C15
    city = 'C:\\plugins\\new "x"\ntab end \t é 😀 \\u0041'
    text = call_text("get_w", city=city)
    assert parse(pieces(text, 1), [GET_W]).calls == [("get_w", {"city": city})]
    for at in range(len(text) + 1):
        assert parse([text[:at], text[at:]], [GET_W]).calls == [("get_w", {"city": city})]


def test_arguments_are_the_json_that_python_writes() -> None:
    turn = parse_every_way(call_text("get_w", city='ñ "q"', days="3", tags='[ "a" ]'), [GET_W])
    assert turn.arguments == [json.dumps({"city": 'ñ "q"', "days": 3, "tags": ["a"]}, ensure_ascii=False)]


def test_no_tag_of_a_call_leaks_into_content() -> None:
    text = "Look:\n" + "\n".join(call_text("write", path="p", content=value) for value in VALUES.values())
    turn = parse_every_way(text, [WRITE])
    assert turn.content == "Look:"
    assert not re.search("<", turn.content)
