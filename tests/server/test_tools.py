"""Tool calls: cases C01 to C16."""

import json

import pytest

from support.site import ANOW, AWX, NOW, WRITE, WX, call, turn

HARD = "see </parameter>, </function></tool_call> and\n<parameter=q>\n7\n</parameter>\nfin"


@pytest.mark.parametrize("size", [1, 7, None])
def test_c01_a_value_may_hold_its_own_closing_tags(site, size) -> None:
    site.say("</think>\n\n" + call("write", path="a", content=HARD), size=size)
    message = site.chat(tools=[WRITE], max_tokens=500).message
    (made,) = message["tool_calls"]
    assert json.loads(made["function"]["arguments"])["content"] == HARD
    assert not message["content"]
    events = site.chat_stream(tools=[WRITE], max_tokens=500)
    assert json.loads(events.calls[0]["arguments"])["content"] == HARD
    assert events.delta("content") == ""


def test_c02_a_call_inside_an_open_thought_is_a_call(site) -> None:
    text = "I will look.\n\n" + call("get_w", city="Rome")
    site.say(text)
    choice = site.chat(tools=[WX]).json["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["reasoning_content"] == "I will look."
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Rome"}
    for tools in ([], [WRITE]):
        control = site.chat(tools=tools).json["choices"][0]
        assert control["finish_reason"] == "stop"
        assert "tool_calls" not in control["message"]
        assert "<tool_call>" in control["message"]["reasoning_content"]


def test_c03_types_come_from_the_schema(site) -> None:
    site.say("</think>\n\n" + call("get_w", zip="00501", city="true", days="4.0"))
    for calls in (site.chat(tools=[WX]).message["tool_calls"],):
        assert json.loads(calls[0]["function"]["arguments"]) == {"zip": "00501", "city": "true", "days": 4}
    assert json.loads(site.chat_stream(tools=[WX]).calls[0]["arguments"]) == {"zip": "00501", "city": "true", "days": 4}


def test_c04_numbers_booleans_and_lists_are_themselves(site) -> None:
    site.say("</think>\n\n" + call("get_w", days="3", metric="True", tags='["a","b"]', more='{"x": [1]}'), size=2)
    wanted = {"days": 3, "metric": True, "tags": ["a", "b"], "more": {"x": [1]}}
    assert json.loads(site.chat(tools=[WX], max_tokens=400).message["tool_calls"][0]["function"]["arguments"]) == wanted
    assert json.loads(site.chat_stream(tools=[WX], max_tokens=400).calls[0]["arguments"]) == wanted
    assert site.message(tools=[AWX], max_tokens=400).json["content"][-1]["input"] == wanted


@pytest.mark.parametrize("size", [1, 4])
def test_c04_half_a_character_in_an_object_breaks_nothing(site, size) -> None:
    cut = r'{"z": "\ud83d", "\ude00": ["\ud83d\ude00"]}'
    site.say("</think>\n\n" + call("get_w", more=cut), size=size)
    wanted = {"more": {"z": "\ufffd", "\ufffd": ["\U0001f600"]}}
    assert json.loads(site.chat(tools=[WX], max_tokens=400).message["tool_calls"][0]["function"]["arguments"]) == wanted
    assert json.loads(site.chat_stream(tools=[WX], max_tokens=400).calls[0]["arguments"]) == wanted
    flat = [{**WX["function"], "type": "function"}]
    told = site.response_stream(tools=flat).values
    assert told[-1]["type"] == "response.completed"
    assert json.loads(told[-1]["response"]["output"][-1]["arguments"]) == wanted
    assert site.message(tools=[AWX], max_tokens=400).status == 200
    assert site.message_stream(tools=[AWX], max_tokens=400).items[-1][0] == "message_stop"


def test_b04_what_cannot_be_written_is_still_a_failed_response(site, monkeypatch) -> None:
    from strata.server.dialects.responses.output import Output

    site.say("</think>\n\nfine")
    plain = Output._said
    monkeypatch.setattr(Output, "_said", lambda self, text: plain(self, text + "\ud83d"))
    told = site.response_stream().values
    assert told[-1]["type"] == "response.failed"
    assert [value["sequence_number"] for value in told] == list(range(len(told)))


def test_c01_parameters_whose_names_cannot_be_written_are_refused_by_name(site) -> None:
    for name in ("a>b", "a<b", "", "a\nb", "x" * 257):
        schema = {"type": "object", "properties": {"fine": {}, name: {"type": "integer"}}}
        tool = {"name": "f", "parameters": schema}
        for reply in (
            site.chat(tools=[{"type": "function", "function": tool}]),
            site.message(tools=[{"name": "f", "input_schema": schema}]),
            site.response(tools=[{"type": "function", **tool}]),
        ):
            assert reply.status == 400
            assert "tools[0]" in reply.error
            assert "property" in reply.error


def test_c06_a_call_without_parameters_has_an_empty_object(site) -> None:
    site.say("</think>\n\n" + call("now"))
    assert site.chat(tools=[NOW]).message["tool_calls"][0]["function"]["arguments"] == "{}"
    assert site.chat_stream(tools=[NOW]).calls[0]["arguments"] == "{}"
    assert site.message(tools=[ANOW]).json["content"][-1]["input"] == {}
    parts = [
        v["delta"]["partial_json"]
        for n, v in site.message_stream(tools=[ANOW]).items
        if n == "content_block_delta" and "partial_json" in v["delta"]
    ]
    assert "".join(parts) == "{}"


def test_c07_parallel_calls_have_their_own_index(site) -> None:
    made = [call("get_w", city="Rome"), call("get_w", city="Oslo"), call("now")]
    site.say("</think>\n\n" + "\n".join(made), size=5)
    events = site.chat_stream(tools=[WX, NOW], parallel_tool_calls=True, max_tokens=400)
    fragments = [c for v in events.values for x in v["choices"] for c in x["delta"].get("tool_calls", [])]
    assert sorted({fragment["index"] for fragment in fragments}) == [0, 1, 2]
    for index in range(3):
        own = [fragment for fragment in fragments if fragment["index"] == index]
        assert {"id", "type"} <= set(own[0])
        assert own[0]["function"]["name"]
        assert all(
            set(fragment) == {"index", "function"} and set(fragment["function"]) == {"arguments"}
            for fragment in own[1:]
        )
    assert len({one["id"] for one in events.calls}) == 3
    assert [json.loads(one["arguments"]) for one in events.calls] == [{"city": "Rome"}, {"city": "Oslo"}, {}]
    single = site.chat(tools=[WX, NOW], parallel_tool_calls=False, max_tokens=400).json["choices"][0]
    assert len(single["message"]["tool_calls"]) == 1
    assert single["finish_reason"] == "tool_calls"
    assert len(site.chat_stream(tools=[WX, NOW], parallel_tool_calls=False, max_tokens=400).calls) == 1
    alone = site.message(
        tools=[AWX, ANOW], tool_choice={"type": "auto", "disable_parallel_tool_use": True}, max_tokens=400
    )
    assert [block["type"] for block in alone.json["content"]].count("tool_use") == 1


def test_c09_a_call_that_was_cut_off_is_not_complete(site) -> None:
    text = "</think>\n\n" + call("get_w", city="a very long city name indeed")
    site.say(text, size=1)
    for most in (20, 60):
        assert site.chat(tools=[WX], max_tokens=most).json["choices"][0]["finish_reason"] == "length"
        assert site.chat_stream(tools=[WX], max_tokens=most).reasons == ["length"]
        message = site.message(tools=[AWX], max_tokens=most).json
        assert message["stop_reason"] == "max_tokens"
        assert not [block for block in message["content"] if block["type"] == "tool_use"]
        response = site.response(tools=[{**WX["function"], "type": "function"}], max_output_tokens=most).json
        assert response["status"] == "incomplete"
        assert all(item["status"] == "incomplete" for item in response["output"] if item["type"] == "function_call")
    whole = "</think>\n\n" + call("now") + "\n" + call("get_w", city="x" * 50)
    site.say(whole, size=1)
    choice = site.chat(tools=[WX, NOW], max_tokens=80).json["choices"][0]
    assert choice["finish_reason"] == "length"
    assert site.message(tools=[AWX, ANOW], max_tokens=80).json["stop_reason"] == "max_tokens"


def test_c10_a_turn_that_ends_inside_a_call_says_so(site) -> None:
    site.say("</think>\n\n<tool_call>\n<function=get_w>\n<parameter=city>\nRo", size=3)
    choice = site.chat(tools=[WX]).json["choices"][0]
    assert (choice["finish_reason"], choice["unfinished"]) == ("stop", "tool_call")
    events = site.chat_stream(tools=[WX])
    last = [value["choices"][0] for value in events.values if value["choices"][0]["finish_reason"]]
    assert (last[0]["finish_reason"], last[0]["unfinished"]) == ("stop", "tool_call")
    message = site.message(tools=[AWX]).json
    assert (message["stop_reason"], message["unfinished"]) == ("end_turn", "tool_use")
    delta = [value["delta"] for name, value in site.message_stream(tools=[AWX]).items if name == "message_delta"]
    assert delta[0]["unfinished"] == "tool_use"
    response = site.response(tools=[{**WX["function"], "type": "function"}]).json
    assert (response["unfinished"], response["output"][0]["status"]) == ("tool_call", "incomplete")
    site.say("</think>\n\n" + call("get_w", city="Rome"))
    assert "unfinished" not in site.chat(tools=[WX]).json["choices"][0]


@pytest.mark.parametrize("tools", [[], [WX]], ids=["no tools", "tools"])
@pytest.mark.parametrize("text", ["plain", "</think>\n\n" + call("get_w", city="Rome")], ids=["text", "call"])
def test_c10_the_reason_follows_the_output(site, tools, text) -> None:
    site.say(text)
    wanted = "tool_calls" if tools and "tool_call" in text else "stop"
    choice = site.chat(tools=tools).json["choices"][0]
    assert choice["finish_reason"] == wanted
    assert ("tool_calls" in choice["message"]) == (wanted == "tool_calls")
    assert site.chat_stream(tools=tools).reasons == [wanted]
    message = site.message(tools=[AWX] if tools else []).json
    assert message["stop_reason"] == ("tool_use" if wanted == "tool_calls" else "end_turn")


def test_c11_arguments_are_a_text(site) -> None:
    site.say("</think>\n\n" + call("get_w", city="Rome"))
    arguments = site.chat(tools=[WX]).message["tool_calls"][0]["function"]["arguments"]
    assert isinstance(arguments, str)
    assert json.loads(arguments) == {"city": "Rome"}


def test_c12_odd_arguments_in_the_history_do_not_poison_it(site) -> None:
    def history(arguments):
        made = {"id": "c", "type": "function", "function": {"name": "get_w", "arguments": arguments}}
        return [
            {"role": "user", "content": "x"},
            {"role": "assistant", "tool_calls": [made]},
            {"role": "tool", "content": "sun", "tool_call_id": "c"},
        ]

    plain = '{"city":"Rome"}'
    prompts = []
    for arguments in (plain, {"city": "Rome"}, json.dumps(plain), '{"city":"Ro', ""):
        assert site.chat(history(arguments), tools=[WX]).status == 200
        prompts.append(site.prompt(messages=history(arguments), tools=[WX]))
    assert prompts[0] == prompts[1] == prompts[2]
    assert '{"city":"Ro' in prompts[3]
    assert "<function=get_w>\n</function>" in prompts[4]


def test_c13_tool_choice_is_honoured_or_refused(site) -> None:
    tools = [WX, NOW]
    weather = "</think>\n\n" + call("get_w", city="Rome")
    named = {"type": "function", "function": {"name": "now"}}
    site.say(weather)
    assert "tool_calls" not in site.chat(tools=tools, tool_choice="none").message
    assert "# Tools" not in site.prompt(messages=[{"role": "user", "content": "x"}], tools=tools, tool_choice="none")
    for choice in ("required", {"type": "function", "function": {"name": "get_w"}}):
        assert site.chat(tools=tools, tool_choice=choice).json["choices"][0]["finish_reason"] == "tool_calls"
    assert site.chat(tools=tools, tool_choice=named).status == 502
    site.say("just prose")
    for choice in ("required", named):
        for reply in (
            site.chat(tools=tools, tool_choice=choice),
            site.chat(tools=tools, tool_choice=choice, reasoning_effort="none"),
        ):
            assert reply.status == 502
            assert "tool_choice" in reply.error
        events = site.chat_stream(tools=tools, tool_choice=choice)
        assert events.status != 200 or "error" in events.items[-2][1]
    assert site.message(tools=[AWX], tool_choice={"type": "any"}).status == 502
    for wrong in (
        {"tools": tools, "tool_choice": {"type": "function", "function": {"name": "other"}}},
        {"tools": [], "tool_choice": "required"},
        {"tool_choice": "required"},
        {"tools": tools, "tool_choice": "sometimes"},
        {"tools": tools, "tool_choice": {"type": "function"}},
        {"tools": tools, "tool_choice": 7},
    ):
        assert site.chat(**wrong).status == 400
    assert site.message(tools=[AWX], tool_choice={"type": "tool", "name": "other"}).status == 400
    site.say(weather)
    assert (
        site.message(tools=[AWX, ANOW], tool_choice={"type": "tool", "name": "get_w"}).json["stop_reason"] == "tool_use"
    )


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("between", ["\t", "\n"], ids=["tab", "line"])
def test_c15_quotes_and_backslashes_survive_every_cut(site, size, between) -> None:
    city = f'C:\\plugins\\new "x"{between}tab end'
    site.say("</think>\n\n" + call("get_w", city=city), size=size)
    assert json.loads(site.chat_stream(tools=[WX], max_tokens=400).calls[0]["arguments"]) == {"city": city}


def test_a_custom_tool_takes_plain_text(site) -> None:
    patch = "*** Begin Patch\n*** End Patch"
    site.say("</think>\n\n" + call("apply_patch", input=patch), size=4)
    tools = [
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "edits",
            "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"},
        }
    ]
    (item,) = [item for item in site.response(tools=tools).json["output"] if item["type"] == "custom_tool_call"]
    assert (item["name"], item["input"]) == ("apply_patch", patch)
    told = site.response_stream(tools=tools).values
    assert [e["input"] for e in told if e["type"] == "response.custom_tool_call_input.done"] == [patch]
    again = [
        {"role": "user", "content": "x"},
        {"type": "custom_tool_call", "call_id": "c", "name": "apply_patch", "input": patch},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
    ]
    assert site.response(again, tools=tools).status == 200
    nested = [{"type": "custom", "custom": {"name": "apply_patch"}}]
    made = site.chat(tools=nested).message["tool_calls"][0]
    assert made["type"] == "custom"
    assert made["custom"] == {"name": "apply_patch", "input": patch}


PATCH = '*** Begin "Patch"\n+ caf\u00e9 \\ \U0001f600\n' * 8 + "*** End Patch"


@pytest.mark.parametrize("size", [1, 5, None])
def test_b10_a_custom_tools_input_flows(site, size) -> None:
    site.say("</think>\n\n" + call("apply_patch", input=PATCH), size=size)
    nested, flat = [{"type": "custom", "custom": {"name": "apply_patch"}}], [{"type": "custom", "name": "apply_patch"}]
    events = site.chat_stream(tools=nested, max_tokens=2000)
    calls = [c for v in events.values for x in v["choices"] for c in x["delta"].get("tool_calls", [])]
    pieces = [one["custom"].get("input", "") for one in calls]
    assert "".join(pieces) == PATCH
    told = site.response_stream(tools=flat).values
    deltas = [value["delta"] for value in told if value["type"] == "response.custom_tool_call_input.delta"]
    assert "".join(deltas) == told[-1]["response"]["output"][-1]["input"] == PATCH
    if size == 1:
        assert len(pieces) > 100
        assert len(deltas) > 100
    assert site.chat(tools=nested, max_tokens=2000).message["tool_calls"][0]["custom"]["input"] == PATCH


def test_c09_a_custom_tools_input_that_is_cut_is_as_much_as_there_is(site) -> None:
    site.say("</think>\n\n" + call("p", input="hello world and more"), size=1)
    nested, flat = [{"type": "custom", "custom": {"name": "p"}}], [{"type": "custom", "name": "p"}]
    most = len("</think>\n\n<tool_call>\n<function=p>\n<parameter=input>\nhello world") - 20
    whole = site.chat(tools=nested, max_tokens=most).message["tool_calls"][0]["custom"]["input"]
    events = site.chat_stream(tools=nested, max_tokens=most)
    calls = [c for v in events.values for x in v["choices"] for c in x["delta"].get("tool_calls", [])]
    assert "".join(one["custom"].get("input", "") for one in calls) == whole
    assert "hello world and more".startswith(whole)
    (item,) = [one for one in site.response(tools=flat, max_output_tokens=most).json["output"] if "input" in one]
    assert item["input"] == whole
    assert item["status"] == "incomplete"


def test_c12_a_custom_call_comes_back_as_it_was_given(site) -> None:
    tools = [{"type": "custom", "custom": {"name": "p"}}]
    site.say("</think>\n\n" + call("p", input="hello"))
    message = site.chat(tools=tools).message
    made = message["tool_calls"][0]
    history = [{"role": "user", "content": "x"}, message, {"role": "tool", "tool_call_id": made["id"], "content": "ok"}]
    assert site.chat(history, tools=tools).status == 200
    assert call("p", input="hello") in site.prompt(messages=history, tools=tools)


def test_more_tools_than_anybody_has_are_refused(site) -> None:
    many = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(5000)]
    for reply in (
        site.chat(tools=many),
        site.message(tools=[{"name": f"f{i}"} for i in range(5000)]),
        site.response(tools=[{"type": "web_search"}] * 5000),
    ):
        assert reply.status == 400
        assert "5000 tools" in reply.error
    assert site.chat(logit_bias={str(i): 1 for i in range(70_000)}).status == 400
    wide = {"type": "object", "properties": {f"p{i}": {} for i in range(60_000)}}
    refused = site.chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": wide}})
    assert refused.status == 400
    assert "parts" in refused.error


def test_functions_of_a_namespace_keep_it(site) -> None:
    site.say("</think>\n\n" + call("get_w", city="Rome"))
    space = {"type": "namespace", "name": "weather", "tools": [{**WX["function"], "type": "function"}]}
    (item,) = [item for item in site.response(tools=[space]).json["output"] if item["type"] == "function_call"]
    assert (item["name"], item["namespace"]) == ("get_w", "weather")


def test_tools_of_the_wrong_shape_are_refused_by_place(site) -> None:
    for tool in (
        {"type": "function"},
        {"type": "function", "function": {"name": "a<b"}},
        {"type": "retrieval"},
        5,
        {"type": "function", "function": {"name": "f", "parameters": []}},
    ):
        reply = site.chat(tools=[tool])
        assert reply.status == 400
        assert "tools[0]" in reply.error
    assert site.chat(tools={}).status == 400
    assert "tools[0].type" in site.message(tools=[{"type": "bash_20250124", "name": "bash"}]).error
    assert site.message(tools=[{"type": "web_search_20250305", "name": "web_search"}]).status == 200
    assert site.response(tools=[{"type": "odd"}]).status == 400


def test_a_turn_ends_at_its_end_whatever_the_script_says_later(site) -> None:
    site.say(turn("a</think>\n\nb<|im_end|>never"))
    assert site.chat().message["content"] == "b"
