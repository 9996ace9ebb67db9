import json

import pytest

import strata
from strata.api import Finished, Reply, ToolCall, Usage
from strata.engine import Sampling
from strata.errors import RequestError, TextError
from strata.text import Content, Reasoning, ToolCallStart
from support.scripted import scripted_model

WEATHER = {
    "name": "get_w",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
CALL = (
    "I look.</think>\n\n<tool_call>\n<function=get_w>\n<parameter=city>\nRome\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)


def test_an_answer_comes_apart_into_reasoning_and_text() -> None:
    model = scripted_model("I count.</think>\n\n1, 2, 3 🙂")
    reply = model.chat("Count.")
    tokens = len(model.network.script)  # type: ignore[attr-defined]
    prompt = len(model.network.prompt)  # type: ignore[attr-defined]
    assert reply == Reply("1, 2, 3 🙂", "I count.", (), "stop", Usage(prompt, tokens))
    assert reply.usage.prompt_tokens > len("Count.") / 2


def test_a_stream_has_the_same_pieces_and_ends_with_the_reason() -> None:
    events = list(scripted_model("I count.</think>\n\n1, 2, 3 🙂").stream_chat("Count."))
    assert "".join(event.text for event in events if isinstance(event, Reasoning)) == "I count."
    assert "".join(event.text for event in events if isinstance(event, Content)) == "1, 2, 3 🙂"
    assert len([event for event in events if isinstance(event, Content)]) > 3  # piece by piece
    assert [type(event) for event in events].index(Content) > [type(event) for event in events].index(Reasoning)
    assert isinstance(events[-1], Finished)
    assert sum(isinstance(event, Finished) for event in events) == 1


def test_a_text_is_short_for_one_user_message() -> None:
    model = scripted_model("x")
    model.chat("Hello <|im_end|> there", thinking=False)
    prompt = model.network.prompt  # type: ignore[attr-defined]
    model.chat([{"role": "user", "content": "Hello <|im_end|> there"}], thinking=False)
    assert model.network.prompt == prompt  # type: ignore[attr-defined]
    assert prompt.count(model.tokenizer.id_of("<|im_end|>")) == 1  # the typed one is plain text
    assert "Hello <|im_end|> there" in model.detokenize(prompt, special=True)


def test_thinking_and_effort_reach_the_template() -> None:
    model = scripted_model("x")
    prompts = []
    for switches in ({}, {"thinking": False}, {"effort": "low"}):
        model.chat("Hi", **switches)  # type: ignore[arg-type]
        prompts.append(model.detokenize(model.network.prompt, special=True))  # type: ignore[attr-defined]
    assert prompts[0].endswith("<think>\n")
    assert prompts[1].endswith("</think>\n\n")
    assert len(set(prompts)) == 3
    assert model.chat("Hi", thinking=False).text == "x"
    assert model.chat("Hi").reasoning == "x"


def test_tool_calls_are_typed_by_their_schema() -> None:
    model = scripted_model(CALL)
    reply = model.chat("Weather?", tools=[WEATHER])
    (call,) = reply.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("get_w", {"city": "Rome", "days": 3})
    assert isinstance(call, ToolCall)
    assert (reply.text, reply.reasoning, reply.finish_reason) == ("", "I look.", "stop")
    assert "get_w" in model.detokenize(model.network.prompt)  # type: ignore[attr-defined]
    assert any(isinstance(event, ToolCallStart) for event in model.stream_chat("Weather?", tools=[WEATHER]))


@pytest.mark.parametrize("room", [1, 4])
def test_a_call_that_was_cut_is_not_taken_for_a_whole_one(room) -> None:  # case C09
    # Cut behind "</function>", the place where a model that stopped by itself would be forgiven; and inside a value.
    model = scripted_model(CALL + "\n" + CALL.partition("</think>\n\n")[2])
    whole = model.network.script  # type: ignore[attr-defined]
    reply = model.chat("Weather?", tools=[WEATHER], max_tokens=len(whole) - 1 - room)
    assert (reply.finish_reason, [call.complete for call in reply.tool_calls]) == ("length", [True, False])
    assert [call.complete for call in model.chat("Weather?", tools=[WEATHER]).tool_calls] == [True, True]


def test_completion_is_the_text_as_it_stands() -> None:
    model = scripted_model("a <think> b")
    reply = model.complete("Say")
    assert (reply.text, reply.reasoning) == ("a <think> b", "")
    assert model.network.prompt == model.tokenize("Say")  # type: ignore[attr-defined]
    model.complete("<|im_start|>Say", special=True)
    assert model.network.prompt[0] == model.tokenizer.id_of("<|im_start|>")  # type: ignore[attr-defined]


def test_half_a_character_at_the_end_is_not_lost() -> None:
    model = scripted_model("🙂")
    whole = len(model.network.script) - 1  # type: ignore[attr-defined]
    assert whole > 1, "the vocabulary has the character as one token; choose another"
    reply = model.complete("Say", max_tokens=1)
    assert (reply.text, reply.finish_reason) == ("\ufffd", "length")


def test_rows_that_stand_for_nothing_are_never_chosen() -> None:
    # The script puts most weight on a row beyond the tokenizer's list.
    assert scripted_model("ok").complete("Say").text == "ok"
    tokenizer = scripted_model("ok").tokenizer
    assert tokenizer.unused_ids
    padding = scripted_model("ok")
    padding.network.script = [min(tokenizer.unused_ids), tokenizer.eos_ids[0]]  # type: ignore[attr-defined]
    assert padding.complete("Say", max_tokens=1).text != ""


def test_requests_use_the_models_defaults_unless_they_say_otherwise(monkeypatch) -> None:
    model = scripted_model("x", sampling=Sampling(temperature=0.5, top_k=9))
    asked = []
    submit = model.source.submit
    monkeypatch.setattr(model.source, "submit", lambda request: asked.append(request) or submit(request))
    for options in ({}, {"top_k": None}, {"top_k": 0, "seed": 3}, {"temperature": 0}):
        model.complete("Say", **options)  # type: ignore[arg-type]
    seen = [Sampling(**request.sampling) for request in asked]
    half = Sampling(temperature=0.5, top_k=9)
    assert seen == [half, half, Sampling(temperature=0.5, seed=3), Sampling(top_k=9)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": -1}, "^temperature must be"),
        ({"max_tokens": 0}, "^max_tokens must be"),
        ({"temprature": 1}, "^unknown option 'temprature'; there are temperature, "),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_the_stream_begins(options, message) -> None:
    model = scripted_model("x")
    for ask in (model.stream_chat, model.stream_complete):
        with pytest.raises(RequestError, match=message):
            ask("Hi", **options)


@pytest.mark.parametrize("ask", ["chat", "complete", "stream_chat", "stream_complete"])
def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(ask) -> None:  # case O01
    model = scripted_model("x", context=64)
    with pytest.raises(RequestError, match=r"the prompt has \d{3} tokens, but the context holds 64 "):
        getattr(model, ask)("1 " * 100)
    assert model.network.prompt == []  # type: ignore[attr-defined]


def test_a_conversation_the_template_refuses_is_an_error_at_once() -> None:
    model = scripted_model("x")
    with pytest.raises(TextError):
        model.stream_chat([])
    model.template = None
    with pytest.raises(TextError, match="no chat template"):
        model.stream_chat("Hi")
    assert model.complete("Hi").text == "x"


def test_cancelling_ends_the_stream_and_says_so() -> None:
    model = scripted_model("1 2 3 4 5 6 7 8")
    tokens = iter(range(99))
    events = list(model.stream_complete("Count", cancelled=lambda: next(tokens) > 3))
    assert isinstance(events[-1], Finished)
    assert events[-1].reason == "cancelled"
    assert 0 < events[-1].usage.completion_tokens < 8


def test_reading_is_reported() -> None:
    seen: list[tuple[int, int]] = []
    model = scripted_model("x")
    list(model.stream_complete("One two", on_prompt=lambda *now: seen.append(now)))
    count = len(model.tokenize("One two"))
    assert seen[-1] == (count, count)
    assert seen == sorted(seen)


@pytest.mark.parametrize("drafts", [1, 3, 7])
def test_drafts_of_the_model_in_the_box_change_nothing(drafts: int) -> None:
    model = strata.load()
    requests = [
        lambda **more: model.chat("Count from 7 to 19.", thinking=False, **more),
        lambda **more: model.complete("import os\n", max_tokens=25, temperature=1.0, seed=5, **more),
    ]
    for ask in requests:
        assert ask(drafts=drafts) == ask(drafts=0)


COUNTED = " ".join(map(str, [*range(1, 61), 1, 2, 3]))
LINES = "\n".join(f"line {i}: the {w} is {i * 37 % 11}" for i, w in enumerate(["door", "lamp", "river", "stone"] * 3))
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = [
    {"name": f"{verb}_weather", "description": f"{verb} the weather of a city", "parameters": TOOL}
    for verb in ("get", "set", "show")
]
REPEATING = {
    "numbers again": {"messages": f"Repeat: {COUNTED}"},
    "three tools": {"messages": "Get the weather for Oslo.", "tools": TOOLS * 3},
    "a file with one changed line": {"messages": f"Repeat: {LINES}\n{LINES.replace('lamp', 'bell', 1)}"},
}


@pytest.mark.parametrize("name", REPEATING)
def test_prompts_that_repeat_themselves_are_answered_the_same_by_default(name: str) -> None:  # case L09
    model = strata.load(keep=False)

    def ask(**options) -> Reply:
        return model.chat(**REPEATING[name], thinking=False, max_tokens=100, logprobs=0, **options)

    plain = ask(drafts=0)
    assert len(plain.tokens) > 10
    assert ask() == plain
    for depth in (1, 4):
        assert ask(drafts=depth) == ask(drafts=depth, lookup=False) == plain
    windows = [event["args"] for event in json.loads(model.trace())["traceEvents"] if event["name"] == "window"]
    sources = {source for window in windows for source in window["drafted"]}
    assert sources == {"head", "lookup"} if name == "numbers again" else sources


def test_drafts_without_a_draft_head_or_out_of_range_are_refused() -> None:
    with pytest.raises(RequestError, match="from 0 to 7"):
        scripted_model("x").chat("Hi", drafts=8)


def test_an_answer_goes_back_into_the_conversation() -> None:
    model = scripted_model(CALL)
    question = {"role": "user", "content": "Weather?"}
    reply = model.chat([question], tools=[WEATHER])
    message = reply.message()
    assert message["reasoning_content"] == "I look."
    assert json.loads(message["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome", "days": 3}
    model.chat([question, message, {"role": "tool", "content": "sun"}], tools=[WEATHER])
    prompt = model.detokenize(model.network.prompt, special=True)  # type: ignore[attr-defined]
    assert prompt.index("<parameter=city>\nRome") < prompt.index("<tool_response>\nsun")
    assert "tool_calls" not in scripted_model("hi").chat("Hello", thinking=False).message()
