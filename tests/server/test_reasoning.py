"""Thinking, effort and budgets: cases D01 to D10; histories and templates: E01 to E07."""

import json
import time

import pytest

from support.site import AWX, WX, call, chat_body, message_body, turn

USER = [{"role": "user", "content": "x"}]


def test_d01_the_end_of_a_thought_parts_the_channels(site) -> None:
    site.say("why</think>\n\nanswer", size=1)
    message = site.chat().message
    assert (message["reasoning_content"], message["content"]) == ("why", "answer")
    events = site.chat_stream()
    assert (events.delta("reasoning_content"), events.delta("content")) == ("why", "answer")
    assert b"</think>" not in events.raw


def test_d02_every_level_renders_its_own_prompt_the_same_on_every_route(site) -> None:
    site.say("Title")

    def length(path: str, body: dict) -> int:
        usage = site.post(path, body).json["usage"]
        return int(usage.get("prompt_tokens") or usage.get("input_tokens"))

    prompts = {}
    for effort in ("none", "low", "medium", "high"):
        prompts[effort] = site.prompt(messages=USER, reasoning_effort=effort)
        of_chat = length("/v1/chat/completions", chat_body("x", reasoning_effort=effort))
        of_response = length("/v1/responses", {"input": "x", "reasoning": {"effort": effort}})
        of_message = length("/v1/messages", message_body("x", output_config={"effort": effort}))
        assert of_chat == of_response == of_message == len(site.tokens(messages=USER, reasoning_effort=effort))
    assert len(set(prompts.values())) == 4
    assert prompts["none"].endswith("<think>\n\n</think>\n\n")
    off = length("/v1/messages", message_body("x", thinking={"type": "disabled"}, output_config={"effort": "low"}))
    assert off == len(site.tokens(messages=USER, reasoning_effort="none"))
    assert site.chat("x", reasoning_effort="none", max_tokens=64).message["content"] == "Title"


@pytest.mark.parametrize(
    ("more", "same"),
    [
        ({"reasoning_effort": "minimal"}, "low"),
        ({"reasoning_effort": "xhigh"}, "high"),
        ({"reasoning_effort": "max"}, "high"),
        ({"reasoning": {"effort": "low"}}, "low"),
        ({"reasoning": {"enabled": False}}, "none"),
        ({"reasoning": {"max_tokens": 0}}, "none"),
        ({"think": "low"}, "low"),
        ({"think": False}, "none"),
        ({"enable_thinking": False}, "none"),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking_budget": 0}, "none"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "none"),
        ({"chat_template_kwargs": {"thinking": False}}, "none"),
        ({"chat_template_kwargs": {"reasoning_effort": "medium"}}, "medium"),
        ({"output_config": {"effort": "medium"}}, "medium"),
        ({"reasoning_effort": "high", "enable_thinking": False}, "none"),
    ],
    ids=str,
)
def test_effort_in_every_spelling(site, more, same) -> None:
    assert site.prompt(messages=USER, **more) == site.prompt(messages=USER, reasoning_effort=same)


@pytest.mark.parametrize(
    "more",
    [
        {"reasoning_effort": "extreme"},
        {"reasoning_effort": 5},
        {"reasoning": "high"},
        {"reasoning": {"effort": 1}},
        {"thinking": {"type": "maybe"}},
        {"enable_thinking": "yes"},
        {"thinking_budget": -5},
        {"thinking_budget": "1"},
        {"chat_template_kwargs": {"unknown": 1}},
        {"reasoning": {"depth": 1}},
    ],
    ids=str,
)
def test_other_words_on_thinking_are_refused_by_name(site, more) -> None:
    reply = site.chat(**more)
    assert reply.status == 400
    assert next(iter(more)) in reply.error


def test_d04_effort_on_responses_reaches_the_parser(site) -> None:
    site.say("r</think>\n\na", size=1)
    events = site.response_stream("x", reasoning={"effort": "medium"})
    output = events.values[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message"]
    assert output[0]["content"][0]["text"] == "r"
    assert output[1]["content"][0]["text"] == "a"
    assert b"</think>" not in events.raw


def test_d05_a_turn_that_ends_in_its_thoughts_is_no_empty_success(site) -> None:
    site.say("We need to", size=3)
    whole = site.chat().json
    assert whole["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4  # of three letters each
    choice = whole["choices"][0]
    assert choice["message"]["reasoning_content"] == "We need to"
    assert (choice["finish_reason"], choice["unfinished"]) == ("stop", "reasoning")
    events = site.chat_stream()
    assert events.delta("reasoning_content") == "We need to"
    last = [value["choices"][0] for value in events.values if value["choices"][0]["finish_reason"]]
    assert last[0]["unfinished"] == "reasoning"
    message = site.message(thinking={"type": "adaptive"}).json
    assert message["content"][0]["thinking"] == "We need to"
    assert message["unfinished"] == "thinking"
    assert site.response().json["unfinished"] == "reasoning"
    assert "unfinished" not in site.chat(reasoning_effort="none").json["choices"][0]


def test_d07_messages_think_on_request(site) -> None:
    site.say("title</think>\n\nbody")
    plain = site.message("title", max_tokens=32).json
    assert [block["type"] for block in plain["content"]] == ["text"]
    on = site.message("title", max_tokens=4000, thinking={"type": "enabled", "budget_tokens": 1024}).json
    assert [block["type"] for block in on["content"]] == ["thinking", "text"]
    clamped = site.message("title", max_tokens=512, thinking={"type": "enabled", "budget_tokens": 1024})
    assert clamped.status == 200
    site.say(turn("w" * 900 + "</think>\n\ndone", size=1))
    clamped = site.message("title", max_tokens=512, thinking={"type": "enabled", "budget_tokens": 1024}).json
    assert clamped["content"][-1] == {"type": "text", "text": "done", "citations": None}
    assert clamped["stop_reason"] == "end_turn"


def test_d08_stray_tags_are_left_out(site) -> None:
    site.say("<think>\n\n</think>\n\nok")
    assert site.chat(reasoning_effort="none").message == {"role": "assistant", "content": "ok"}
    assert site.chat_stream(reasoning_effort="none").delta("content") == "ok"
    refused = site.chat(reasoning_format="none")
    assert refused.status == 400
    assert "reasoning_format" in refused.error


@pytest.mark.parametrize(
    "more",
    [
        {"thinking_budget": 100},
        {"thinking_budget_tokens": 100},
        {"reasoning_budget": 100},
        {"thinking_token_budget": 100},
        {"max_thinking_tokens": 100},
        {"reasoning": {"max_tokens": 100}},
        {"thinking": {"type": "enabled", "budget_tokens": 100}},
        {"chat_template_kwargs": {"thinking_budget": 100}},
    ],
    ids=str,
)
def test_d10_a_budget_closes_the_thinking_and_an_answer_follows(site, more) -> None:
    site.say(turn("r" * 500 + "</think>\n\ndone", size=1))
    choice = site.chat(max_tokens=200, **more).json["choices"][0]
    assert choice["message"]["content"] == "done"
    assert choice["message"]["reasoning_content"] == "r" * 100
    assert choice["finish_reason"] == "stop"


def test_d10_streamed_and_without_a_budget(site) -> None:
    site.say(turn("r" * 500 + "</think>\n\ndone", size=1))
    events = site.chat_stream(max_tokens=200, thinking_budget=100)
    assert (events.delta("content"), events.delta("reasoning_content")) == ("done", "r" * 100)
    without = site.chat(max_tokens=200).json
    assert without["choices"][0]["finish_reason"] == "length"
    assert without["choices"][0]["message"]["reasoning_content"] == "r" * 200
    assert without["usage"]["completion_tokens_details"]["reasoning_tokens"] == 200
    generous = site.chat(max_tokens=200, thinking_budget=1000).json["choices"][0]
    assert generous["message"]["content"] == "done"
    assert len(generous["message"]["reasoning_content"]) < 200


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 8])
def test_d10_an_answer_has_room_however_little_there_is(site, most) -> None:
    site.say(turn("r" * 50 + "</think>done", size=1))
    choice = site.chat(max_tokens=most, thinking_budget=100).json["choices"][0]
    assert choice["message"]["content"]


def test_thoughts_may_be_hidden(site) -> None:
    site.say("secret</think>\n\nanswer", size=2)
    for more in ({"include_reasoning": False}, {"reasoning": {"exclude": True}}):
        assert site.chat(**more).message == {"role": "assistant", "content": "answer"}
        assert b"secret" not in site.chat_stream(**more).raw
    thinking = {"type": "adaptive", "display": "omitted"}
    block = site.message(thinking=thinking).json["content"][0]
    assert block["thinking"] == ""
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [block, {"type": "text", "text": "answer"}]},
        {"role": "user", "content": "y"},
    ]
    told = site.post("/v1/messages/count_tokens", message_body(history)).json["input_tokens"]
    history[1]["content"][0] = {"type": "thinking", "thinking": "secret", "signature": "foreign"}
    assert site.post("/v1/messages/count_tokens", message_body(history)).json["input_tokens"] == told
    history[1]["content"][0] = {"type": "redacted_thinking", "data": "zzz"}
    assert site.post("/v1/messages/count_tokens", message_body(history)).json["input_tokens"] < told


def test_sealed_thoughts_come_back_on_responses(site) -> None:
    site.say("deep thought</think>\n\nanswer")
    first = site.response("x", include=["reasoning.encrypted_content"]).json
    items = [
        {k: v for k, v in item.items() if k != "content" or item["type"] != "reasoning"} for item in first["output"]
    ]
    assert "deep thought" not in json.dumps(items)
    history = [{"role": "user", "content": "x"}, *items, {"role": "user", "content": "y"}]
    again = site.response(history).json["usage"]["input_tokens"]
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "answer", "reasoning_content": "deep thought"},
        {"role": "user", "content": "y"},
    ]
    assert again == len(site.tokens(messages=messages))


def test_a_little_that_is_sealed_is_not_much(site) -> None:
    from strata.server.sealed import seal

    bomb = seal("a" * 3_000_000)
    assert len(bomb) < 10_000
    blocks = [{"type": "thinking", "thinking": "", "signature": bomb}] * 50
    history = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": "y"},
    ]
    items = [{"role": "user", "content": "x"}, *[{"type": "reasoning", "encrypted_content": bomb}] * 50]
    began = time.monotonic()
    for reply in (site.post("/v1/messages", message_body(history)), site.response(items)):
        assert reply.status == 400
        assert "sealed" in reply.error
    assert time.monotonic() - began < 20


# ---- histories


def test_e01_a_later_system_message_stays_where_it_is(site) -> None:
    messages = [
        {"role": "system", "content": "first rule"},
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "system", "content": "now digits"},
        {"role": "user", "content": "c"},
    ]
    assert site.chat(messages).status == 200
    prompt = site.prompt(messages=messages)
    assert prompt.index("first rule") < prompt.index("now digits") < prompt.index("user\nc")
    assert prompt.count("<|im_start|>system") == 2
    last = site.message(
        [{"role": "user", "content": "a"}, {"role": "system", "content": "now digits"}], system="first rule"
    )
    assert last.status == 200
    same = [
        {"role": "system", "content": "first rule"},
        {"role": "user", "content": "a"},
        {"role": "system", "content": "now digits"},
    ]
    assert last.json["usage"]["input_tokens"] == len(site.tokens(messages=same, reasoning_effort="none"))


def test_e03_what_the_template_refuses_is_a_400_with_its_words(site) -> None:
    critic = site.chat([{"role": "critic", "content": "x"}, {"role": "user", "content": "y"}])
    assert critic.status == 400
    assert "Unknown role: critic" in critic.error
    two = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert site.prompt(messages=two).count("<|im_start|>user") == 2
    assert site.chat([]).status == 400
    assert site.message([]).status == 400
    assert site.response([]).status == 400
    for wrong in (5, [5], [{"role": 5, "content": "x"}], [{"content": "x"}], {"role": "user"}):
        assert site.post("/v1/chat/completions", {"messages": wrong}).status == 400
        assert site.post("/v1/messages", {"messages": wrong, "max_tokens": 5}).status == 400
        assert site.post("/v1/responses", {"input": wrong}).status == 400


def test_e05_past_thoughts_are_shown_or_left_out_as_asked(site) -> None:
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "R"},
        {"role": "user", "content": "c"},
    ]
    kept = site.prompt(messages=messages)
    assert "<think>\nR\n</think>\n\nb" in kept
    for more in (
        {"chat_template_kwargs": {"preserve_thinking": False}},
        {"thinking": {"type": "enabled", "clear_thinking": True}},
    ):
        assert "R" not in site.prompt(messages=messages, **more)


def test_e06_an_empty_text_block_beside_a_call_is_nothing(site) -> None:
    made = {"type": "tool_use", "id": "t1", "name": "get_w", "input": {"city": "Rome"}}
    for content in ("sun", [{"type": "text", "text": "sun"}], ...):
        result = {"type": "tool_result", "tool_use_id": "t1"} | ({} if content is ... else {"content": content})
        history = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "content": [{"type": "text", "text": ""}, made]},
            {"role": "user", "content": [result]},
        ]
        body = message_body(history, tools=[AWX])
        assert site.post("/v1/messages", body).status == 200
        same = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "get_w", "arguments": {"city": "Rome"}}}]},
            {"role": "tool", "content": "" if content is ... else "sun"},
        ]
        counted = site.post("/v1/messages/count_tokens", body).json["input_tokens"]
        assert counted == len(site.tokens(messages=same, tools=[WX], reasoning_effort="none"))


def test_e06_results_and_text_keep_their_order(site) -> None:
    from strata.server.dialects.anthropic.content import read_messages

    blocks = [
        {"type": "tool_result", "tool_use_id": "a", "content": "r"},
        {"type": "text", "text": "one"},
        {"type": "text", "text": "two"},
    ]
    assert read_messages([{"role": "user", "content": blocks}]) == [
        {"role": "tool", "content": "r", "tool_call_id": "a"},
        {"role": "user", "content": "one\n\ntwo"},
    ]
    assert site.message([{"role": "user", "content": "x"}, {"role": "user", "content": blocks}]).status == 200


def test_e07_a_last_assistant_message_is_continued_the_same_way_on_both_routes(site) -> None:
    def prompt(last, **more) -> str:
        return site.prompt(messages=[*USER, {"role": "assistant", **last}], **more)

    def counted(last, **more) -> int:
        body = message_body([*USER, {"role": "assistant", **last}], **more)
        assert site.post("/v1/messages", body).status == 200
        return int(site.post("/v1/messages/count_tokens", body).json["input_tokens"])

    text, listed = {"content": "The answer is"}, {"content": [{"type": "text", "text": "The answer is"}]}
    for more in ({}, {"reasoning_effort": "none"}):
        assert prompt(text, **more) == prompt(listed, **more)
        assert prompt(text, **more).endswith("The answer is")
    thinking = {"thinking": {"type": "adaptive"}}
    assert (
        counted(text)
        == counted(listed)
        == len(site.tokens(messages=[*USER, {"role": "assistant", **text}], reasoning_effort="none"))
    )
    assert counted(text, **thinking) == counted(listed, **thinking)
    closed = prompt({"content": "<think>\nr\n</think>\n\nThe"})
    assert closed.endswith("<think>\nr\n</think>\n\nThe")
    opened = prompt({"content": "<think>\nr"})
    assert opened.endswith("<think>\nr")
    made = {"tool_calls": [{"function": {"name": "get_w", "arguments": "{}"}}]}
    for finished in (made, {"content": ""}):
        assert prompt(finished).endswith("<|im_start|>assistant\n<think>\n")
    site.say(" 42")
    assert site.chat([*USER, {"role": "assistant", **text}]).message["content"] == " 42"


def test_k13_a_clients_changing_line_is_not_in_the_prompt(site) -> None:
    rest = "word " * 400

    def body(nonce: str, user: str = "x") -> dict:
        line = f"x-anthropic-billing-header: cc_version=1.2.3; cc_entrypoint=cli; cch={nonce};"
        return message_body(user, system=[{"type": "text", "text": line}, {"type": "text", "text": rest}])

    plain = message_body("x", system=[{"type": "text", "text": rest}])
    count = site.post("/v1/messages/count_tokens", plain).json["input_tokens"]
    for nonce in ("abcde", "1"):
        assert site.post("/v1/messages/count_tokens", body(nonce)).json["input_tokens"] == count
    typed = "x-anthropic-billing-header: cch=abcde;"
    assert typed in site.prompt(messages=[{"role": "user", "content": typed}])


def test_a_call_in_the_history_of_messages_is_in_the_prompt(site) -> None:
    made = {"type": "tool_use", "id": "t", "name": "get_w", "input": {"city": "Rome"}}
    from strata.server.dialects.anthropic.content import read_messages

    (turned,) = read_messages(
        [
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": ""},
                    {"type": "text", "text": "so"},
                    made,
                ],
            }
        ]
    )
    assert turned["reasoning_content"] == "hm"
    assert call("get_w", city="Rome") in site.prompt(messages=[*USER, turned, {"role": "tool", "content": "y"}])


def test_a_budget_breaks_no_character(site) -> None:
    site.say(turn("a\U0001f600" * 50 + "</think>\n\ndone", size=1))
    for budget in range(3, 8):
        events = site.chat_stream(max_tokens=200, thinking_budget=budget)
        assert "\ufffd" not in events.raw.decode()
        assert events.delta("content") == "done"
