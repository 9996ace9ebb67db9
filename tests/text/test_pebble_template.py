"""Pebble's template against the behaviour of model specification, section 16, items 1 to 9, written out by hand."""

import json
from collections.abc import Iterator

import pytest

from strata.errors import TextError
from strata.text import ChatTemplate, pebble_template
from strata.text.chat.marks import Marks
from strata.text.chat.renderer import Limits, Renderer
from support.vocab import vocabulary_metadata

USER = {"role": "user", "content": "hi"}
GET_W = {
    "type": "function",
    "function": {"name": "get_w", "description": "Wetter <für> 'heute'", "parameters": {"type": "object"}},
}
CALL = {"type": "function", "function": {"name": "get_w", "arguments": {"city": "Rome", "n": [1, "é"], "b": True}}}
OPEN, CLOSED = "<|im_start|>assistant\n<think>\n", "<|im_start|>assistant\n<think>\n\n</think>\n\n"
HI = "<|im_start|>user\nhi<|im_end|>\n"
INSTRUCTIONS = (
    "To call a tool, write:\n"
    "<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>"
)


@pytest.fixture(scope="module")
def template() -> Iterator[ChatTemplate]:
    made = ChatTemplate.from_metadata(vocabulary_metadata(chat_template=pebble_template()))
    yield made
    made.close()


def system(text: str) -> str:
    return f"<|im_start|>system\n{text}<|im_end|>\n"


@pytest.mark.parametrize(
    ("switches", "start", "end"),
    [
        ({}, system("Think carefully."), OPEN),
        ({"effort": "xhigh"}, system("Think carefully."), OPEN),
        ({"effort": "high"}, system("Think carefully."), OPEN),
        ({"effort": "medium"}, "", OPEN),
        ({"effort": "low"}, system("Think briefly."), OPEN),
        ({"effort": "none"}, "", CLOSED),
        ({"thinking": False}, "", CLOSED),
        ({"thinking": False, "effort": "low"}, "", CLOSED),
        ({"thinking": False, "add_generation_prompt": False}, "", ""),
    ],
    ids=str,
)
def test_effort_and_thinking(template: ChatTemplate, switches: dict[str, object], start: str, end: str) -> None:
    prompt = template.render([USER], **switches)
    assert prompt.text == start + HI + end
    assert prompt.inside_thinking == (end == OPEN)


def test_an_unknown_effort_is_an_error(template: ChatTemplate) -> None:
    with pytest.raises(TextError, match=r"'huge'.*xhigh, high, medium, low, none"):
        template.render([USER], effort="huge")


def test_the_sentence_stands_before_system_text_after_a_blank_line(template: ChatTemplate) -> None:
    messages = [{"role": "system", "content": " Be kind. \n"}, USER]
    assert template.render(messages).text == system("Think carefully.\n\nBe kind.") + HI + OPEN
    assert template.render(messages, effort="medium").text == system("Be kind.") + HI + OPEN
    assert template.render([{"role": "system", "content": " "}, USER], effort="medium").text == HI + OPEN


def test_tools(template: ChatTemplate) -> None:
    now = {"type": "function", "function": {"name": "now"}}
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in (GET_W, now))
    section = f"# Tools\n\n<tools>\n{lines}\n</tools>\n\n{INSTRUCTIONS}"
    messages = [{"role": "system", "content": "Be kind."}, USER]
    assert template.render([USER], tools=[GET_W, now], thinking=False).text == system(section) + HI + CLOSED
    bare = [GET_W["function"], now["function"]]
    assert template.render([USER], tools=bare, thinking=False).text == system(section) + HI + CLOSED
    full = system(f"Think briefly.\n\n{section}\n\nBe kind.") + HI + OPEN
    assert template.render(messages, tools=[GET_W, now], effort="low").text == full
    assert template.render([USER], tools=[], thinking=False).text == HI + CLOSED


def test_calls_and_results(template: ChatTemplate) -> None:
    messages = [
        USER,
        {
            "role": "assistant",
            "content": " I look. ",
            "tool_calls": [CALL, {"function": {"name": "now", "arguments": {}}}],
        },
        {"role": "tool", "content": " sun "},
        {"role": "tool", "content": [{"type": "text", "text": "ra"}, {"type": "text", "text": "in"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
    ]
    call = (
        '<tool_call>\n<function=get_w>\n<parameter=city>\nRome\n</parameter>\n<parameter=n>\n[1, "é"]\n</parameter>\n'
        "<parameter=b>\ntrue\n</parameter>\n</function>\n</tool_call>"
    )
    empty = "<tool_call>\n<function=now>\n</function>\n</tool_call>"
    results = "\n<tool_response>\nsun\n</tool_response>\n<tool_response>\nrain\n</tool_response>"
    assert template.render(messages, thinking=False).text == (
        HI
        + f"{CLOSED}I look.\n\n{call}\n{empty}<|im_end|>\n"
        + f"<|im_start|>user{results}<|im_end|>\n"
        + f"{CLOSED}{call}<|im_end|>\n"
        + CLOSED
    )


THOUGHT = {"role": "assistant", "content": "ok", "reasoning_content": "\nR\n"}
IN_CONTENT = {"role": "assistant", "content": "<think>\nR\n</think>\n\nok"}
SHOWN, HIDDEN = "<|im_start|>assistant\n<think>\nR\n</think>\n\nok<|im_end|>\n", "<|im_start|>assistant\nok<|im_end|>\n"


@pytest.mark.parametrize("thought", [THOUGHT, IN_CONTENT], ids=["field", "tags"])
def test_past_reasoning_before_and_after_the_last_question(template: ChatTemplate, thought: dict[str, str]) -> None:
    # E05's four cases: reasoning before and after the last user message, kept and not kept.
    before = [USER, thought, USER]
    after = [USER, thought | {"tool_calls": [CALL]}, {"role": "tool", "content": "sun"}]
    assert template.render(before, thinking=False).text == HI + SHOWN + HI + CLOSED
    assert template.render(before, thinking=False, preserve_thinking=False).text == HI + HIDDEN + HI + CLOSED
    for preserve in (True, False):
        text = template.render(after, thinking=False, preserve_thinking=preserve).text
        assert text.startswith(HI + SHOWN.removesuffix("<|im_end|>\n") + "\n\n<tool_call>")


def test_a_tool_result_written_as_a_user_message_is_no_question(template: ChatTemplate) -> None:
    result = {"role": "user", "content": "<tool_response>\nsun\n</tool_response>"}
    text = template.render([USER, THOUGHT, result], thinking=False, preserve_thinking=False).text
    assert SHOWN in text
    with pytest.raises(TextError, match="No user message"):
        template.render([result])


def test_the_template_without_marks_renders_pictures_and_videos() -> None:
    # Messages with pictures are refused for now, before the template sees them; the format has a place for them.
    renderer = Renderer(pebble_template(), Marks([]).of_control, Limits())
    parts = [
        {"type": "text", "text": "a"},
        {"type": "image"},
        {"type": "image_url"},
        {"type": "video"},
        {"type": "text", "text": "b"},
    ]
    variables = {
        "messages": [{"role": "user", "content": parts}, {"role": "user", "content": parts[1:2]}],
        "enable_thinking": False,
    }
    picture, video = "<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"
    assert renderer.render(variables) == (
        f"<|im_start|>user\na{picture}{picture}{video}b<|im_end|>\n<|im_start|>user\n{picture}<|im_end|>\n"
    )
    assert renderer.render(variables | {"add_vision_id": True}) == (
        f"<|im_start|>user\naPicture 1: {picture}Picture 2: {picture}Video 1: {video}b<|im_end|>\n"
        f"<|im_start|>user\nPicture 3: {picture}<|im_end|>\n"
    )
    renderer.close()
