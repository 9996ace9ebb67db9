"""The output parser as a stream: cuts do not matter, text flows, and work is linear."""

import json
import sys

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata.text import Content, OutputParser, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart
from support.parsing import GET_W, NOW, WRITE, Turn, call_text, parse, pieces

TOOLS = [GET_W, WRITE, NOW]
FRAGMENTS = [
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=write>", "<function=get_w>", "<function=now>",
    "<function=rm>", "</function>", "<parameter=path>", "<parameter=content>", "<parameter=days>", "<parameter=q>",
    "</parameter>", "\n", "\n\n", " ", "text", "<", ">", "</", "<tool", "<parameter=", "42",
    "true", '"', "\\", "é", "\n</parameter>\n",
    call_text("write", path="a", content="b"), call_text("now"), "\n</parameter>\n</function>\n</tool_call>",
]  # fmt: skip
outputs = st.lists(st.sampled_from(FRAGMENTS), max_size=14).map("".join)
values = st.lists(
    st.sampled_from([f for f in FRAGMENTS if "<parameter=content>" not in f and "<parameter=path>" not in f]),
    max_size=8,
).map("".join)

# A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(PATIENT, max_examples=400)
@given(outputs, st.data(), st.booleans(), st.booleans(), st.sampled_from([None, TOOLS]))
def test_any_cut_gives_the_same_turn(text: str, data: st.DataObject, thinking: bool, cut: bool, tools: object) -> None:
    whole = parse([text], tools, thinking=thinking, cut=cut)
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    chunks = [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True)]
    assert parse(chunks, tools, thinking=thinking, cut=cut) == whole
    assert parse(pieces(text, 1), tools, thinking=thinking, cut=cut) == whole


@settings(PATIENT, max_examples=300)
@given(outputs, st.booleans())
def test_complete_calls_are_valid_json_and_text_without_tools_is_kept(text: str, thinking: bool) -> None:
    for _, arguments in parse([text], TOOLS, thinking=thinking).calls:
        assert isinstance(arguments, dict)
    if "think>" not in text:
        turn = parse([text], thinking=thinking)
        assert (turn.reasoning, turn.content) == ((text.strip(), "") if thinking else ("", text))


def balanced(value: str) -> bool:
    """Whether the closing tags inside a value leave no doubt: every call in it is opened before it is closed."""
    return "<tool_call>" not in value and "<function=" not in value and "</function>" not in value


@settings(PATIENT, max_examples=400)
@given(values.filter(balanced), values.filter(balanced))
def test_any_value_without_the_end_of_a_call_in_it_comes_back(path: str, content: str) -> None:
    text = call_text("write", path=path, content=content)
    assert parse(pieces(text, 3), TOOLS).calls == [("write", {"path": path, "content": content})]


def test_text_flows_before_the_turn_ends() -> None:
    parser = OutputParser(TOOLS, thinking=True)
    assert parser.push("Let me") == [Reasoning("Let me")]
    assert parser.push(" see") == [Reasoning(" see")]
    assert parser.push(" <b") == [Reasoning(" <b")]
    assert parser.push("<thi") == []
    assert parser.push("n> ") == [Reasoning("<thin>")]
    assert parser.push("</think>\n\n") == []
    assert parser.push("a") == [Content("a")]
    assert parser.push(" 1 < 2") == [Content(" 1 < 2")]
    assert parser.push("<tool_call>\n") == []
    assert parser.push("no") == [Content("<tool_call>\nno")]


def test_the_name_comes_first_and_a_long_string_flows() -> None:  # B10
    parser = OutputParser(TOOLS, thinking=False)
    assert parser.push("<tool_call>\n<function=get_w>\n") == []
    start, opened = parser.push("<parameter=city>\n")
    assert (start, opened) == (ToolCallStart(0, "get_w"), ToolCallArguments(0, '{"city": '))
    written = opened.json_fragment
    for number in range(3000):
        (delta,) = parser.push(f"word {number} ")
        assert f"word {number} " in delta.json_fragment
        written += delta.json_fragment
    last = parser.push("\n</parameter>\n</function>\n</tool_call>") + parser.finish()
    assert last == [ToolCallArguments(0, '"}'), ToolCallEnd(0)]
    assert json.loads(written + '"}') == {"city": "".join(f"word {number} " for number in range(3000))}


def test_a_long_value_flows_where_it_can_only_be_a_string() -> None:
    schemas = [{"type": ["string", "null"]}, {"anyOf": [{"type": "string"}, {"type": "array"}]}, {}]
    for schema in schemas:
        tool = {"name": "f", "parameters": {"properties": {"a": schema}}}
        parser = OutputParser([tool], thinking=False)
        parser.push("<tool_call>\n<function=f>\n<parameter=a>\n" + "x" * 64)
        assert parser.push("y") == [ToolCallArguments(0, '"' + "x" * 64 + "y")]


def test_a_call_ends_when_the_next_one_begins() -> None:
    parser = OutputParser(TOOLS, thinking=False)
    parser.push(call_text("get_w", city="Rome") + "\n<tool_call>\n")
    ended = parser.push("<function=get_w>\n<parameter=city>\nOs")
    assert ended == [
        ToolCallArguments(0, '"}'),
        ToolCallEnd(0),
        ToolCallStart(1, "get_w"),
        ToolCallArguments(1, '{"city": "Os'),
    ]


def test_an_argument_flows_until_a_tag_and_after_it_was_none() -> None:
    parser = OutputParser(TOOLS, thinking=False)
    parser.push("<tool_call>\n<function=write>\n<parameter=content>\n")
    assert parser.push("a\n") == [ToolCallArguments(0, '"a')]
    assert parser.push("</parameter>\n") == []
    assert parser.push("b") == [ToolCallArguments(0, "\\n</parameter>\\nb")]


def work(text: str, tools: object) -> tuple[int, int, list[int]]:
    """Python calls of a whole parse fed character by character, characters matched again, and calls for each push."""
    parser = OutputParser(tools, thinking=False)
    calls = again = 0
    each = []

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    turn = Turn()
    for character in text:
        before = calls
        sys.setprofile(count)
        deltas = parser.push(character)
        sys.setprofile(None)
        each.append(calls - before)
        again += len(parser._lexer._waiting)
        for delta in deltas:
            turn.take(delta)
    sys.setprofile(count)
    deltas = parser.finish()
    sys.setprofile(None)
    for delta in deltas:
        turn.take(delta)
    return calls, again, each


def test_work_is_linear_whatever_waits() -> None:  # F09's second half
    doubtful = call_text("write", path="p", content="x") + "\ntext\n"
    shapes = {
        "prose": lambda n: "plain words and <tags> too " * n,
        "one long value": lambda n: call_text("write", content="line with </parameter> in it\n" * n),
        "white space": lambda n: "a" + " \n" * 10 * n + "b",
        "white space in a call": lambda n: (
            "<tool_call>" + " \n" * 10 * n + "<function=now>" + "\n" * 10 * n + "</function></tool_call>"
        ),
        "text after a call": lambda n: doubtful + "all of it waits " * n,
        "calls with text between": lambda n: doubtful * n,
        "ends of a call in a value": lambda n: call_text(
            "write", content="a\n</parameter>\n</function>\n</tool_call>\n" * n + "z"
        ),
        "openers": lambda n: "<tool_call>\n<function=write>\n" * n,
        "open tags": lambda n: "<" * 20 * n,
        "a long number": lambda n: call_text("get_w", days="1" * 20 * n),
    }
    for name, shape in shapes.items():
        few, few_again, _ = work(shape(40), TOOLS)
        many, many_again, _ = work(shape(160), TOOLS)
        # Four times the text. Fixed costs can only lower the ratio; quadratic work would make it 16.
        assert many < 4.4 * few, name
        assert many_again < 4.4 * few_again + 1000, name


def test_the_work_for_a_piece_does_not_grow_with_the_turn() -> None:  # F09: first against last 1,000 of 20,000
    text = call_text("write", content="é < 😀 नमस्ते </parameter> and words " * 600)[:20_000]
    _, _, each = work(text, TOOLS)
    assert sum(each[-1000:]) < 1.5 * sum(each[1000:2000])
