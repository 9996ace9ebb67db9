"""Reasoning and answer told apart (group D of the public faults, as far as no server is needed)."""

import pytest

from strata.text import ChatTemplate, OutputParser, pebble_template
from support.parsing import GET_W, Turn, call_text, parse_every_way
from support.vocab import vocabulary_metadata


def parts(turn: Turn) -> tuple[str, str, bool]:
    return turn.reasoning, turn.content, turn.reasoning_open


def test_the_template_opened_the_block() -> None:  # D01, D04
    assert parts(parse_every_way("why</think>\n\nanswer", thinking=True)) == ("why", "answer", False)
    assert parts(parse_every_way("\nwhy \n why\n</think>\n\n  answer\n", thinking=True)) == (
        "why \n why",
        "  answer\n",
        False,
    )


def test_the_model_repeats_the_opener() -> None:
    assert parts(parse_every_way("<think>\nwhy\n</think>\n\na", thinking=True)) == ("why", "a", False)


@pytest.mark.parametrize("tail", ["", "\n", " "])
def test_the_turn_ends_inside_the_block(tail: str) -> None:  # D05
    assert parts(parse_every_way("We need to" + tail, thinking=True)) == ("We need to", "", True)
    assert parts(parse_every_way("" + tail, thinking=True)) == ("", "", True)


def test_the_block_is_closed_and_nothing_follows() -> None:
    assert parts(parse_every_way("r\n</think>\n\n", thinking=True)) == ("r", "", False)


@pytest.mark.parametrize(
    "text", ["<think>\n\n</think>\n\nok", "</think>\n\nok", "\n<think></think>ok", "\n\n</think>\nok"]
)
def test_stray_tags_with_thinking_off(text: str) -> None:  # D08
    assert parts(parse_every_way(text, thinking=False)) == ("", "ok", False)


def test_thinking_in_spite_of_the_switch_is_still_reasoning() -> None:
    assert parts(parse_every_way("<think>\nwhy\n</think>\n\nok", thinking=False)) == ("why", "ok", False)


@pytest.mark.parametrize("thinking", [True, False])
def test_tags_later_in_the_answer_are_text(thinking: bool) -> None:
    answer = "The tag <think> opens and </think> closes.\n\n<thin k> </tool_call> <parameter=x>"
    start = "r</think>" if thinking else ""
    assert parse_every_way(start + answer, thinking=thinking).content == answer
    assert parse_every_way(start + answer, [GET_W], thinking=thinking).content == answer


def test_plain_text_with_thinking_off_is_content_as_it_is() -> None:  # B11
    for text in ("hello", " hello \n", "\n\n", "", "a\n\n\nb  "):
        assert parts(parse_every_way(text, thinking=False)) == ("", text, False)


def test_a_call_after_reasoning_and_text() -> None:
    text = "why\n</think>\n\nI look.\n\n" + call_text("get_w", city="Rome")
    turn = parse_every_way(text, [GET_W], thinking=True)
    assert (turn.reasoning, turn.content, turn.calls) == ("why", "I look.", [("get_w", {"city": "Rome"})])


def test_a_block_that_is_closed_after_a_call_leaves_no_tag() -> None:
    text = "hm\n" + call_text("get_w", city="Rome") + "\n</think>\n\nDone."
    turn = parse_every_way(text, [GET_W], thinking=True)
    assert (turn.reasoning, turn.content, len(turn.calls)) == ("hm", "Done.", 1)


@pytest.mark.parametrize("thinking", [True, False])
def test_what_the_template_ends_with_is_what_the_parser_begins_with(thinking: bool) -> None:
    template = ChatTemplate.from_metadata(vocabulary_metadata(chat_template=pebble_template()))
    user = {"role": "user", "content": "Is <think> a tag?"}
    reply = {"role": "assistant", "content": "Yes: <b>.", "reasoning_content": "r" if thinking else ""}
    prompt = template.render([user], thinking=thinking)
    history = template.render([user, reply], thinking=thinking, add_generation_prompt=False)
    template.close()
    assert history.text.startswith(prompt.text)
    written = history.text.removeprefix(prompt.text).removesuffix("<|im_end|>\n")
    turn = parse_every_way(written, thinking=prompt.inside_thinking)
    assert (turn.reasoning, turn.content) == ("r" if thinking else "", "Yes: <b>.")


def test_nothing_is_reported_twice_after_the_end() -> None:
    parser = OutputParser(thinking=True)
    parser.push("a</think>b ")
    assert parser.finish() != []
    assert parser.finish() == []
