"""Streams: cases B01 to B15."""

import itertools
import json
import socket
import time

import pytest

from support.site import AWX, WX, call, chat_body, message_body, receive, turn


def test_b01_the_envelope_and_the_usage_chunk(site) -> None:
    site.say("a</think>\n\nb c d", size=1)
    for events in (
        site.chat_stream(stream_options={"include_usage": True}),
        site.stream(
            "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 4, "stream_options": {"include_usage": True}}
        ),
    ):
        assert events.items[-1][1] == "[DONE]"
        assert all("choices" in value for value in events.values)
        assert len({(value["id"], value["created"], value["model"]) for value in events.values}) == 1
        (usage,) = [value for value in events.values if value["choices"] == []]
        assert all(not value.get("usage") for value in events.values[:-1])
        assert usage is events.values[-1]
        assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + usage["usage"]["completion_tokens"]
        assert events.values[-2]["choices"][0]["finish_reason"]
    assert all(value["choices"] for value in site.chat_stream().values)


def test_b03_every_chunk_has_its_finish_reason(site) -> None:
    site.say("a</think>\n\nbcdef", size=1)
    for more in ({}, {"n": 2}):
        events = site.chat_stream(max_tokens=4, **more)
        assert events.values[0]["choices"][0]["delta"]["role"] == "assistant"
        choices = [choice for value in events.values for choice in value["choices"]]
        assert all("finish_reason" in choice for choice in choices)
        for index in range(more.get("n", 1)):
            assert [c["finish_reason"] for c in choices if c["index"] == index and c["finish_reason"]] == ["length"]


def test_b04_a_fault_in_a_stream_is_said_in_the_stream(site, caplog) -> None:
    caplog.set_level("INFO", "strata.server")
    fault = turn("a</think>\n\nb c", size=1, fault="raise")
    site.say(fault)
    chat = site.chat_stream()
    assert "error" in chat.items[-2][1]
    assert chat.items[-1][1] == "[DONE]"
    message = site.message_stream()
    assert message.items[-1][0] == "error"
    assert message.items[-1][1]["type"] == "error"
    response = site.response_stream()
    assert response.items[-1][0] == "response.failed"
    assert response.items[-1][1]["response"]["status"] == "failed"
    (thought, said) = response.items[-1][1]["response"]["output"]
    assert (thought["status"], said["status"]) == ("completed", "incomplete")
    assert said["content"][0]["text"] == "b c"
    assert message.items[-1][1]["request_id"] == message.headers["request-id"]
    completion = site.stream("/v1/completions", {"model": "m", "prompt": "x"})
    assert "error" in completion.items[-2][1]
    for events in (chat, message, response, completion):
        assert b"HTTP/1." not in events.raw
        assert b'"finish_reason":"stop"' not in events.raw
        assert b'"finish_reason":"length"' not in events.raw
        assert b"message_stop" not in events.raw
    for reply in (site.chat(), site.message(), site.response(), site.complete()):
        assert reply.status == 500
        assert "error" in reply.json
    ends = [record.getMessage() for record in caplog.records if ", prompt " in record.getMessage()]
    assert len(ends) == 8
    assert all(": error (500" in line for line in ends), ends
    site.say("fine</think>\n\nagain")
    assert site.chat().message["content"] == "again"


def blocks_of(events) -> list[dict]:
    """The blocks of a message stream, put together, with every rule of their order checked."""
    found: list[dict] = []
    open_block = None
    for name, value in events.items:
        if name == "content_block_start":
            assert open_block is None
            assert value["index"] == len(found)
            open_block = value["index"]
            found.append({**value["content_block"], "text_": ""})
        elif name == "content_block_delta":
            assert value["index"] == open_block
            delta = value["delta"]
            found[-1]["text_"] += delta.get("text", "") + delta.get("thinking", "") + delta.get("partial_json", "")
            found[-1] |= {"signature": delta["signature"]} if "signature" in delta else {}
        elif name == "content_block_stop":
            assert value["index"] == open_block
            open_block = None
    assert open_block is None
    return found


def test_b06_blocks_are_numbered_without_a_gap(site) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    site.say("t</think>\n\n" + call("get_w", city="Rome"))
    blocks = blocks_of(site.message_stream(tools=[AWX], thinking=thinking, max_tokens=4000))
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"]
    assert json.loads(blocks[1]["text_"]) == {"city": "Rome"}
    site.say("t</think>\n\nsome text\n\n" + call("get_w", city="Rome") + "\n" + call("get_w", city="Oslo"))
    events = site.message_stream(tools=[AWX], thinking=thinking, max_tokens=4000)
    blocks = blocks_of(events)
    assert [block["type"] for block in blocks] == ["thinking", "text", "tool_use", "tool_use"]
    names = [name for name, _ in events.items if name != "ping"]
    assert names[0] == "message_start"
    assert names[-2:] == ["message_delta", "message_stop"]
    whole = site.message(tools=[AWX], thinking=thinking, max_tokens=4000).json["content"]
    assert [block["type"] for block in whole] == ["thinking", "text", "tool_use", "tool_use"]
    assert whole[0] == {"type": "thinking", "thinking": "t", "signature": blocks[0]["signature"]}
    assert [block["input"] for block in whole[2:]] == [{"city": "Rome"}, {"city": "Oslo"}]


@pytest.fixture
def patient(other_site):
    return other_site(sign=0.1)


def test_b08_a_long_reading_is_not_silent(patient) -> None:
    prompt = "word " * 1200
    for path, body in (
        ("/v1/chat/completions", chat_body(prompt)),
        ("/v1/messages", message_body(prompt)),
        ("/v1/responses", {"model": "m", "input": prompt}),
    ):
        patient.say("x", reading_ms=60)
        data = json.dumps({**body, "stream": True}).encode()
        began = time.monotonic()
        with socket.create_connection((patient.host, patient.port), timeout=10) as link:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(data)}\r\n\r\n"
            link.sendall(head.encode() + data)
            times, found = [], b""
            while b"0\r\n\r\n" not in found[-20:]:
                part = link.recv(1 << 16)
                assert part
                found += part
                times.append(time.monotonic())
        assert found.startswith(b"HTTP/1.1 200")
        assert times[0] - began < 1
        assert times[-1] - began > 1
        assert max(b - a for a, b in itertools.pairwise(times)) < 0.9
    site_events = patient.chat_stream(prompt, return_progress=True)
    told = [value["prompt_progress"] for value in site_events.values if "prompt_progress" in value]
    assert told[-1]["processed"] == told[-1]["total"] > 1200


def test_b10_arguments_flow_while_they_are_written(site) -> None:
    value = "word " * 200
    site.say(turn("</think>\n\n" + call("get_w", city=value), size=8, delay_ms=4))
    events = site.chat_stream(tools=[WX], max_tokens=4000)
    (made,) = events.calls
    assert json.loads(made["arguments"]) == {"city": value}
    fragments = [v for v in events.values if v["choices"][0]["delta"].get("tool_calls")]
    assert fragments[0]["choices"][0]["delta"]["tool_calls"][0]["function"] == {"name": "get_w", "arguments": ""}
    assert len(fragments) > 50
    assert max(b - a for a, b in itertools.pairwise(events.times)) < 1


def test_b11_without_thinking_everything_is_content(site) -> None:
    site.say("hello")
    for more in (
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"reasoning_effort": "none"},
        {"think": False},
        {"enable_thinking": False},
        {"thinking": {"type": "disabled"}},
        {"reasoning": {"enabled": False}},
    ):
        events = site.chat_stream(**more)
        message = site.chat(**more).message
        assert events.delta("reasoning_content") == ""
        assert events.delta("content") == message["content"] == "hello"
        assert not message.get("reasoning_content")


def test_b14_a_connection_may_rest_between_requests(site) -> None:
    assert site.desk.options.idle >= 75
    body = json.dumps(chat_body()).encode()
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % len(body)
    with socket.create_connection((site.host, site.port), timeout=5) as link:
        for pause in (0.0, 0.6):
            time.sleep(pause)
            link.sendall(head + b"\r\n" + body)
            assert receive(link).startswith(b"HTTP/1.1 200")
        link.sendall(head + b"\r\n" + body + head + b"\r\n" + body)  # two at once
        both = receive(link)
        while both.count(b"HTTP/1.1 200") < 2 or not both.endswith(b"}"):
            both += receive(link)
        link.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert link.recv(100).startswith(b"HTTP/1.1 100")
        link.sendall(body)
        assert receive(link).startswith(b"HTTP/1.1 200")


def test_b14_an_idle_connection_is_closed_cleanly(other_site) -> None:
    hasty = other_site(idle=1)
    with socket.create_connection((hasty.host, hasty.port), timeout=5) as link:
        link.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        receive(link)
        assert link.recv(10) == b""


def test_b15_a_proxy_is_told_not_to_hold_a_stream(site) -> None:
    site.say("a b c")
    for events in (site.chat_stream(), site.message_stream(), site.response_stream()):
        assert events.headers["x-accel-buffering"] == "no"
        assert "no-cache" in events.headers["cache-control"]
        assert events.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in events.headers
    squeezed = site.stream("/v1/messages", message_body(), **{"accept-encoding": "gzip, br"})
    assert "content-encoding" not in squeezed.headers
    site.say(turn("a" * 20, size=1, delay_ms=20))
    events = site.chat_stream(reasoning_effort="none")
    assert events.times[-1] - events.times[0] > 0.2


def test_stream_and_whole_are_the_same_on_every_route(site) -> None:
    text = "why so</think>\n\nHello wörld.\n\n" + call("get_w", city="Rome", days="3") + "\n" + call("now")
    site.say(text, size=3)
    tools = [WX, {"type": "function", "function": {"name": "now"}}]
    events, message = site.chat_stream(tools=tools, max_tokens=400), site.chat(tools=tools, max_tokens=400).message
    assert events.delta("content") == message["content"] == "Hello wörld."
    assert events.delta("reasoning_content") == message["reasoning_content"] == "why so"
    streamed = [(made["name"], made["arguments"]) for made in events.calls]
    assert streamed == [(made["function"]["name"], made["function"]["arguments"]) for made in message["tool_calls"]]
    flat = [tool["function"] | {"type": "function"} for tool in tools]
    told = site.response_stream(tools=flat).values
    whole = site.response(tools=flat).json
    assert told[-1]["type"] == "response.completed"

    def plain(items):
        return [{k: v for k, v in item.items() if k not in {"id", "call_id"}} for item in items]

    assert plain(told[-1]["response"]["output"]) == plain(whole["output"])
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert plain(done) == plain(whole["output"])
