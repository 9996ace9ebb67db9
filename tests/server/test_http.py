"""Requests and their refusals: cases A01 to A16."""

import base64
import json
import time

import msgspec
import pytest

from strata.worker.messages import Limits
from support.site import AWX, CONTEXT, WX, Site, call, chat_body, message_body

ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses", "/v1/messages/count_tokens")
PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 64).decode()


def is_error(reply, path: str, status: int = 400) -> None:
    assert reply.status == status, reply.body
    told = reply.json
    assert isinstance(told["error"]["message"], str)
    assert "Traceback" not in reply.body.decode()
    if path.startswith("/v1/messages"):
        assert told["type"] == "error"
    if status == 400:
        assert told["error"]["type"] == "invalid_request_error"


def test_a01_a_body_that_is_no_json_is_a_400_in_the_dialects_form(site) -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":"hi"},],}'
    for path in ROUTES:
        is_error(site.post(path, raw=raw), path)
    assert site.chat().status == 200


@pytest.mark.parametrize(
    "raw", [b"[]", b"true", b"null", b"123", b'"s"', b"", b"   ", b"\xff\xfe", b'{"a":"\\ud800"}', b"{", b"NaN"]
)
def test_a02_json_that_is_no_object_is_a_400(site, raw) -> None:
    for path in ROUTES:
        is_error(site.post(path, raw=raw), path)


def test_a02_deep_nesting_is_refused_before_it_is_parsed(site) -> None:
    deep = b'{"messages":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    for path in ROUTES:
        reply = site.post(path, raw=deep)
        is_error(reply, path)
        assert "nesting" in reply.error
    strings = json.dumps(chat_body("[[[[" * 1000 + '\\"[')).encode()
    assert site.post("/v1/chat/completions", raw=strings).status == 200


def test_a04_queries_and_a_last_slash_do_not_matter(site) -> None:
    assert site.post("/v1/messages?beta=true", message_body()).status == 200
    assert site.post("/v1/messages/?beta=true", message_body()).status == 200
    assert site.post("/v1/chat/completions?api-version=1", chat_body()).status == 200
    is_error(site.post("/v1/nothing?beta=true", {}), "/v1/nothing", 404)
    is_error(site.get("/v1/chat/completions"), "", 405)


def test_a05_text_parts_reach_the_prompt_in_order(site) -> None:
    parts = [{"type": "text", "text": "ab"}, {"type": "text", "text": "cd"}]
    plain = site.chat("abcd", max_tokens=4).json["usage"]["prompt_tokens"]
    reply = site.chat([{"role": "user", "content": parts}], max_tokens=4)
    assert reply.status == 200
    assert reply.json["usage"]["prompt_tokens"] == plain
    assert site.chat([{"role": "user", "content": []}]).status == 200
    unknown = site.chat([{"role": "user", "content": [{"type": "smell", "text": "x"}]}])
    is_error(unknown, "")
    assert "'smell'" in unknown.error
    history = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get_w", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": parts},
    ]
    assert site.chat(history, tools=[WX]).status == 200
    assert "abcd" in site.prompt(messages=history, tools=[WX])


def test_a06_assistant_turns_without_text_are_kept(site) -> None:
    made = {"id": "c1", "type": "function", "function": {"name": "get_w", "arguments": '{"city":"Rome"}'}}
    lengths = set()
    for content in ({"content": None}, {}, {"content": ""}):
        turn = {"role": "assistant", "tool_calls": [made], **content}
        messages = [{"role": "user", "content": "x"}, turn, {"role": "tool", "tool_call_id": "c1", "content": "sun"}]
        reply = site.chat(messages, tools=[WX])
        assert reply.status == 200
        lengths.add(reply.json["usage"]["prompt_tokens"])
        prompt = site.prompt(messages=messages, tools=[WX])
        assert "<function=get_w>\n<parameter=city>\nRome" in prompt
        assert "sun" in prompt
    assert len(lengths) == 1
    assert (
        site.chat(
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": None}, {"role": "user", "content": "y"}]
        ).status
        == 200
    )


def test_a07_what_is_asked_for_is_done_or_refused(site) -> None:
    site.say("one two three four five", "six seven eight nine ten", size=1)
    both = site.chat(n=2, temperature=1, seed=1, max_tokens=4).json
    assert [choice["index"] for choice in both["choices"]] == [0, 1]
    assert {choice["message"]["reasoning_content"] for choice in both["choices"]} == {"one", "six"}
    assert both["usage"]["completion_tokens"] == 8
    for more in ({"max_completion_tokens": 3, "max_tokens": ...}, {"max_completion_tokens": 3, "max_tokens": 9}):
        assert site.chat(**more).json["usage"]["completion_tokens"] == 3
    assert site.chat(n=0).status == 400
    assert site.chat(n=1000).status == 400
    refused = site.chat(logit_bias={"999999": 1})
    assert refused.status == 400
    assert "logit_bias" in refused.error
    for wrong in ({"5": 101}, {"x": 1}, [1], {"5": "a"}, {"\u0665": 1}, {"05": 1}):
        assert site.chat(logit_bias=wrong).status == 400


def test_a07_more_answers_than_can_ever_be_taken_are_refused(site, monkeypatch) -> None:
    small = msgspec.structs.replace(site.served.known, limits=Limits(1, 2))
    monkeypatch.setattr(site.served, "_ready", small)
    for more in ({}, {"stream": True}):
        for refused, name in ((site.chat(n=4, **more), "n"), (site.complete(["x"] * 4, **more), "prompt")):
            assert refused.status == 400
            assert "3 at most" in refused.error
            assert refused.json["error"]["param"] == name
    assert site.chat(n=3).status == 200


def test_a_models_name_is_a_text(site) -> None:
    for name in (5, ["scripted"], {}, True):
        for ask in (site.chat, site.message, site.response, site.complete):
            reply = ask(model=name)
            assert reply.status == 400
            assert "model" in reply.error
    assert site.chat(model=None).status == 200


@pytest.mark.parametrize("most", [..., None, -1, 0])
def test_a08_no_limit_means_what_the_context_leaves(site, most) -> None:
    site.say("say all of this")
    for reply in (site.chat(max_tokens=most, reasoning_effort="none"), site.message(max_tokens=most)):
        assert reply.status == 200
        assert b"say all of this" in reply.body
    assert site.chat(max_tokens=-2).status == 400
    assert site.chat(max_tokens="9").status == 400
    assert site.chat(max_tokens=2**63).status == 200


def test_a09_a_bad_schema_is_a_400_that_names_the_place(site) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as spy:
        spy.settimeout(0.2)
        address = f"http://127.0.0.1:{spy.getsockname()[1]}/s.json"
        for inner, place in (
            ({"type": "nonsense"}, "properties.a"),
            ({"$ref": address}, "properties.a"),
            ({"anyOf": [{"type": "string"}, {"type": 7}]}, "properties.a.anyOf[1]"),
        ):
            schema = {"type": "object", "properties": {"a": inner}}
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            for reply in (site.chat(response_format=form), site.chat_stream(response_format=form)):
                assert reply.status == 400
            reply = site.chat(response_format=form)
            assert place in reply.error
            tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
            assert site.chat(tools=[tool]).status == 200  # tools of others may be sloppy: nothing is checked by them
            assert site.chat(tools=[tool], tool_choice="required").status == 502
            told = site.response(text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
            assert place in told.error
        with pytest.raises(TimeoutError):
            spy.accept()


def test_a11_codex_can_start(site) -> None:
    tools = [
        {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}},
        {"type": "web_search"},
        {"type": "custom", "name": "apply_patch"},
        {"type": "namespace", "name": "ns", "tools": []},
    ]
    body = {"stream": False, "store": False, "max_output_tokens": 4, "tools": tools}
    site.say("hi")
    assert site.response(**body).status == 200
    prompt = site.prompt(messages=[{"role": "user", "content": "hi"}])
    stateful = site.response(**body, previous_response_id="resp_x")
    is_error(stateful, "")
    assert "previous_response_id" in stateful.error
    probe = site.response("", max_output_tokens=1)
    assert probe.status == 200
    assert probe.json["status"] == "incomplete"
    assert "hi" in prompt


def test_a11_items_of_hosted_tools_are_left_out_of_a_history(site) -> None:
    plain = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, {"role": "user", "content": "z"}]
    kinds = ("web_search_call", "mcp_call", "mcp_list_tools", "local_shell_call", "local_shell_call_output",
             "computer_call", "computer_call_output", "tool_search_call", "code_interpreter_call", "shell_call",
             "apply_patch_call", "image_generation_call", "mcp_approval_request")  # fmt: skip
    mixed = [plain[0], *({"type": kind, "id": "x", "action": {}} for kind in kinds), *plain[1:]]
    length = site.response(plain).json["usage"]["input_tokens"]
    assert site.response(mixed).json["usage"]["input_tokens"] == length
    for kind in ("item_reference", "compaction", "mcp", "web_search_odd", "odd_call"):
        refused = site.response([*plain, {"type": kind, "id": "x"}])
        assert refused.status == 400, kind
        assert kind in refused.error
    blocks = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]},
        {"type": "text", "text": "y"},
    ]
    asked = message_body([plain[0], {"role": "assistant", "content": blocks}, plain[2]])
    counted = site.post("/v1/messages/count_tokens", asked).json["input_tokens"]
    assert counted == site.post("/v1/messages/count_tokens", message_body(plain)).json["input_tokens"]
    assert site.post("/v1/messages", asked).status == 200


def test_a13_the_count_is_that_of_the_prompt(site) -> None:
    body = message_body(
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
        system=[{"type": "text", "text": "You are brief."}],
        tools=[AWX],
        thinking={"type": "enabled", "budget_tokens": 2000},
    )
    site.say({"pieces": ["x"], "cached": 11})
    counted = site.post("/v1/messages/count_tokens", body).json["input_tokens"]
    used = site.post("/v1/messages", body).json["usage"]
    assert used["cache_read_input_tokens"] == 11
    whole = used["input_tokens"] + used["cache_read_input_tokens"] + used["cache_creation_input_tokens"]
    assert counted == whole
    del body["max_tokens"]
    assert site.post("/v1/messages/count_tokens", body).json["input_tokens"] == counted


def test_a13_the_input_of_a_response_is_counted_the_same_way(site) -> None:
    body = {"model": "m", "input": [{"role": "user", "content": "hi there"}], "instructions": "be brief",
            "reasoning": {"effort": "low"}, "tools": [{"type": "function", **WX["function"]}]}  # fmt: skip
    told = site.post("/v1/responses/input_tokens", body).json
    assert told["object"] == "response.input_tokens"
    assert told["input_tokens"] == site.post("/v1/responses", body).json["usage"]["input_tokens"]
    assert site.get("/v1/responses/input_tokens").status == 405


def test_fields_of_the_official_clients_that_cost_nothing_are_left_out(site) -> None:
    assert site.message(thread={"type": "create"}, workspace_id="w", fallbacks=[], billing_policy={}).status == 200
    refused = site.message(thread={"type": "continue", "id": "t"})
    assert refused.status == 400
    assert "thread" in refused.error
    for ask in (site.chat, site.response):
        assert ask(prompt_cache_options={}, moderation={}).status == 200


def test_a14_a_form_applies_behind_the_thinking(site) -> None:
    site.say('plan</think>\n\n{"a":1}')
    form = {"type": "json_object"}
    message = site.chat(response_format=form, max_tokens=200).message
    assert (message["content"], message["reasoning_content"]) == ('{"a":1}', "plan")
    events = site.chat_stream(response_format=form, max_tokens=200)
    assert (events.delta("content"), events.delta("reasoning_content")) == ('{"a":1}', "plan")


def test_a15_completions_are_no_second_class_route(site) -> None:
    site.say(*(f"t{i}" for i in range(20)))
    assert site.complete("a").json["choices"][0]["text"] == "t0"
    two = site.complete(["a", "b"]).json
    assert [(c["index"], c["text"]) for c in two["choices"]] == [(0, "t1"), (1, "t2")]
    ids = site.complete([1, 2, 3]).json
    assert ids["usage"]["prompt_tokens"] == 3
    lists = site.complete([[1, 2, 3], [4, 5]]).json
    assert lists["usage"]["prompt_tokens"] == 5
    assert len(lists["choices"]) == 2
    echo = site.complete("prompt: ", echo=True, max_tokens=3).json["choices"][0]["text"]
    assert echo.startswith("prompt: t")
    probable = site.complete("a", logprobs=2).json["choices"][0]["logprobs"]
    assert probable["tokens"] == ["t7"]
    assert len(probable["top_logprobs"][0]) == 2
    assert probable["text_offset"] == [0]
    for wrong in ({"n": 0}, {"best_of": 3}, {"echo": True, "logprobs": 1}, {"user_id": "x"}):
        is_error(site.complete("a", **wrong), "")
    for wrong in ("", [], [[]], ["a", ""], [1, "a"], [99999], [-1], None, {"a": 1}, [True]):
        is_error(site.complete(wrong), "")
    filled = site.complete("before", suffix="x").json
    assert filled["choices"][0]["text"] == "t8"


def test_a15_a_suffix_is_put_in_with_the_models_own_tokens(site) -> None:
    from strata.server.dialects.openai.completions import read_completion

    tokenizer = site.served.tokenizer
    ask, _, _ = read_completion({"prompt": "ab", "suffix": "cd"}, tokenizer, 2560, site.desk.options, "")
    assert tokenizer.decode(ask.prompts[0], special=True) == "<|fim_prefix|>ab<|fim_suffix|>cd<|fim_middle|>"


def test_a16_pictures_are_refused_by_name_on_every_route(site) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG}
    url = f"data:image/png;base64,{PNG}"
    text = {"type": "text", "text": "what is this"}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [text, {"type": "image", "source": source}]}
    for reply, kind in (
        (
            site.chat([{"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": url}}]}]),
            "image_url",
        ),
        (site.message([{"role": "user", "content": [text, {"type": "image", "source": source}]}]), "image"),
        (site.message([{"role": "user", "content": [result]}]), "image"),
        (
            site.response(
                [
                    {
                        "role": "user",
                        "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": url}],
                    }
                ]
            ),
            "input_image",
        ),
        (
            site.response(
                [
                    {
                        "type": "function_call_output",
                        "call_id": "c",
                        "output": [{"type": "input_image", "image_url": url}],
                    }
                ]
            ),
            "input_image",
        ),
    ):
        assert reply.status == 400
        assert f"'{kind}'" in reply.error
        assert PNG[:20] not in reply.error


def test_o01_o02_a_prompt_over_the_limit_is_refused_with_both_numbers(site) -> None:
    ids = [5] * (CONTEXT + 1)
    text = "a b " * (CONTEXT // 2 + 100)
    for more in ({}, {"stream": True}):
        replies = [
            site.complete(ids, **more),
            site.chat(text, **more),
            site.message(text, **more),
            site.response(text, **more),
        ]
        for reply in replies:
            assert reply.status == 400
            assert reply.headers["content-type"] == "application/json"
            assert str(CONTEXT) in reply.error
        assert replies[0].json["error"]["code"] == "context_length_exceeded"
        assert str(CONTEXT + 1) in replies[0].error
        assert replies[2].json["error"]["type"] == "invalid_request_error"


def test_o01_what_is_many_times_too_long_is_refused_without_reading_it_all(site, other_site) -> None:
    roomy = other_site(body=64 << 20)
    text = "a a a " * 2_000_000
    began = time.thread_time()
    for reply in (roomy.chat(text), roomy.message(text), roomy.response(text), roomy.complete(text)):
        assert reply.status == 400, reply.body
        assert "more than" in reply.error
        assert str(CONTEXT) in reply.error
        assert reply.json["error"].get("code", "context_length_exceeded") == "context_length_exceeded"
    assert time.thread_time() - began < 20
    parts = [{"role": "user", "content": [{"type": "text", "text": text[: len(text) // 8]}] * 4}]
    assert roomy.chat(parts).json["error"]["code"] == "context_length_exceeded"
    # Long in characters, but not in tokens: it is read to its end, and fits.
    word = max((site.served.tokenizer.token_bytes(token) for token in range(500, 2000)), key=len).decode()
    assert len(site.tokens(content=word * 100)) <= 110
    fitting = word * (9 * CONTEXT // len(word))
    assert len(site.tokens(content=fitting)) < CONTEXT or site.chat(fitting).status == 400


def test_o03_the_edge_of_the_context(site: Site) -> None:
    site.say("x" * 40, size=1)
    for room in (5, 1):
        ids = [5] * (CONTEXT - room)
        for most in (room, room + 1, None):
            reply = site.complete(ids, max_tokens=most).json
            assert reply["usage"]["completion_tokens"] == room
            assert reply["choices"][0]["finish_reason"] == "length"
    assert site.complete([5] * CONTEXT).status == 400


def test_q04_fields_that_nobody_knows_are_refused_by_name(site, other_site) -> None:
    for field, value in (("options", {"num_ctx": 99999}), ("keep_alive", "5m"), ("num_predict", 5), ("invented", 1)):
        for reply in (
            site.chat(**{field: value}),
            site.message(**{field: value}),
            site.response(**{field: value}),
            site.complete(**{field: value}),
        ):
            is_error(reply, "")
            assert field in reply.error
    assert site.chat(invented=None).status == 200
    lenient = other_site(strict=False)
    assert lenient.chat(invented=1, options={"num_ctx": 5}).status == 200
    for inside in ({"stream_options": {"zz": 1}}, {"reasoning": {"zz": 1}}, {"chat_template_kwargs": {"zz": 1}},
                   {"usage": {"zz": 1}}, {"structured_outputs": {"zz": 1}}, {"output_config": {"zz": 1}}):  # fmt: skip
        assert lenient.chat(**inside).status == 200, inside
        assert site.chat(**inside).status == 400, inside


def test_a_request_that_is_too_large_is_a_413(other_site) -> None:
    small = other_site(body=2000)
    for path in ROUTES:
        reply = small.post(path, raw=json.dumps({"a": "x" * 3000}).encode())
        is_error(reply, path, 413)
    chunked = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunked += b"".join(b"3e8\r\n" + b" " * 1000 + b"\r\n" for _ in range(8)) + b"0\r\n\r\n"
    assert b" 413 " in small.raw(chunked, 1).split(b"\r\n")[0]
    assert small.chat().status == 200
    packed = small.request("POST", "/v1/messages", {}, {"content-encoding": "gzip"})
    is_error(packed, "/v1/messages", 415)


def test_embeddings_are_a_clear_501(site) -> None:
    reply = site.post("/v1/embeddings", {"model": "m", "input": "x"})
    is_error(reply, "", 501)
    assert "embeddings" in reply.error


def test_tokens_and_back(site) -> None:
    ids = site.tokens(content="Hello there <think>")
    assert site.post("/detokenize", {"tokens": ids}).json["content"] == "Hello there <think>"
    assert site.post("/tokenize", {"prompt": "ab"}).json["count"] == len(site.tokens(content="ab"))
    assert len(site.tokens(content="<|im_end|>")) > 1
    assert len(site.tokens(content="<|im_end|>", parse_special=True)) == 1
    named = site.post("/tokenize", {"content": "é", "with_pieces": True}).json["tokens"]
    assert all("piece" in token for token in named)
    for wrong in ({"tokens": [10**9]}, {"tokens": "a"}, {}, {"tokens": [True]}):
        is_error(site.post("/detokenize", wrong), "")
    is_error(site.post("/tokenize", {}), "")
    assert call("f") in site.prompt(
        messages=[
            {"role": "user", "content": "x"},
            {"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]},
            {"role": "tool", "content": "y"},
        ]
    )


def test_models_are_listed_for_both_kinds_of_clients(site) -> None:
    (one,) = site.get("/v1/models").json["data"]
    assert (one["id"], one["object"], one["type"]) == ("scripted", "model", "model")
    assert site.get("/v1/models/scripted").json["id"] == "scripted"
    is_error(site.get("/v1/models/other"), "", 404)
    props = site.get("/props").json
    assert (props["n_ctx"], props["engine"]) == (CONTEXT, "script")
    assert len(site.get("/slots").json) == 8


def test_importing_the_server_imports_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, strata.server.serving, strata.cli.serve; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
