"""The official client of Anthropic against a live server."""

import anthropic
import pytest

from support.site import AWX, call, turn


@pytest.fixture
def client(site):
    with anthropic.Anthropic(base_url=site.url, api_key="none", max_retries=0, timeout=20) as made:
        yield made


MESSAGES = [{"role": "user", "content": "hi"}]
THINKING = {"type": "enabled", "budget_tokens": 1024}
CALL = "why</think>\n\nLooking.\n\n" + call("get_w", city="Rome", days="3")


def test_messages(site, client) -> None:
    site.say("Hello there")
    done = client.messages.create(model="m", messages=MESSAGES, max_tokens=50, system="be brief")
    assert done.content[0].text == "Hello there"
    assert done.stop_reason == "end_turn"
    assert done.usage.output_tokens == 2


def test_thinking_and_tools_go_round(site, client) -> None:
    site.say(CALL)
    tools = [{**AWX, "cache_control": {"type": "ephemeral"}}]
    done = client.messages.create(model="m", messages=MESSAGES, max_tokens=4000, thinking=THINKING, tools=tools)
    assert [block.type for block in done.content] == ["thinking", "text", "tool_use"]
    assert done.content[0].signature
    assert done.stop_reason == "tool_use"
    assert done.content[2].input == {"city": "Rome", "days": 3}
    result = {"type": "tool_result", "tool_use_id": done.content[2].id, "content": [{"type": "text", "text": "sun"}]}
    history = [*MESSAGES, {"role": "assistant", "content": done.content}, {"role": "user", "content": [result]}]
    site.say("ok</think>\n\nSunny.")
    again = client.messages.create(model="m", messages=history, max_tokens=4000, thinking=THINKING, tools=tools)
    assert again.content[1].text == "Sunny."
    counted = client.messages.count_tokens(model="m", messages=history, thinking=THINKING, tools=tools)
    assert counted.input_tokens == again.usage.input_tokens + again.usage.cache_read_input_tokens


def test_streamed(site, client) -> None:
    site.say(CALL, size=3)
    with client.messages.stream(
        model="m", messages=MESSAGES, max_tokens=4000, thinking=THINKING, tools=[AWX]
    ) as stream:
        kinds = {event.type for event in stream}
        done = stream.get_final_message()
    assert {"thinking", "signature", "text", "input_json", "content_block_stop", "message_stop"} <= kinds
    assert [block.type for block in done.content] == ["thinking", "text", "tool_use"]
    assert done.content[0].thinking == "why"
    assert done.content[1].text == "Looking."
    assert done.content[2].input == {"city": "Rome", "days": 3}
    assert done.stop_reason == "tool_use"
    assert done.usage.output_tokens > 5


def test_two_calls_without_text(site, client) -> None:
    site.say("t</think>\n\n" + call("get_w", city="Rome") + "\n" + call("get_w", city="Oslo"), size=5)
    with client.messages.stream(
        model="m", messages=MESSAGES, max_tokens=4000, thinking=THINKING, tools=[AWX]
    ) as stream:
        done = stream.get_final_message()
    assert [block.type for block in done.content] == ["thinking", "tool_use", "tool_use"]
    assert [block.input for block in done.content[1:]] == [{"city": "Rome"}, {"city": "Oslo"}]


def test_a_cut_call_and_a_stop_sequence(site, client) -> None:
    site.say("</think>\n\n" + call("get_w", city="Rome" * 30), size=1)
    with client.messages.stream(model="m", messages=MESSAGES, max_tokens=80, tools=[AWX]) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"
    site.say("alpha bravo charlie", size=1)
    done = client.messages.create(model="m", messages=MESSAGES, max_tokens=50, stop_sequences=["vo ch"])
    assert (done.content[0].text, done.stop_reason, done.stop_sequence) == ("alpha bra", "stop_sequence", "vo ch")


def test_errors_are_the_clients_own(site, client, other_site, closing) -> None:
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(model="m", messages=MESSAGES, max_tokens=50, extra_body={"temperature": -1})
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model="m", messages=MESSAGES, max_tokens=50, extra_body={"invented": 1})
    site.say(turn("a b", size=1, fault="raise"))
    with pytest.raises(anthropic.InternalServerError):
        client.messages.create(model="m", messages=MESSAGES, max_tokens=50)
    with (
        pytest.raises(anthropic.APIStatusError),
        client.messages.stream(model="m", messages=MESSAGES, max_tokens=50) as stream,
    ):
        stream.get_final_message()
    locked = other_site(keys={"a": "right"})
    with pytest.raises(anthropic.AuthenticationError):
        closing(anthropic.Anthropic(base_url=locked.url, api_key="wrong")).models.list()
    right = closing(anthropic.Anthropic(base_url=locked.url, api_key="right"))
    assert [model.id for model in right.models.list()] == ["scripted"]
    token = closing(anthropic.Anthropic(base_url=locked.url, auth_token="right", api_key=None))
    assert token.models.retrieve("scripted").display_name == "scripted"


def test_a_long_reading_keeps_the_client_alive(other_site, closing) -> None:
    patient = other_site(sign=0.1)
    patient.say("there", reading_ms=40)
    slow = closing(anthropic.Anthropic(base_url=patient.url, api_key="none", max_retries=0, timeout=0.5))
    with slow.messages.stream(
        model="m", messages=[{"role": "user", "content": "word " * 1500}], max_tokens=50
    ) as stream:
        assert stream.get_final_text() == "there"
