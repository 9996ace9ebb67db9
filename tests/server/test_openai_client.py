"""The official client of OpenAI against a live server."""

import asyncio
import json

import openai
import pytest
from pydantic import BaseModel

from support.site import WX, call, turn


@pytest.fixture
def client(site):
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="none", max_retries=0, timeout=20) as made:
        yield made


MESSAGES = [{"role": "user", "content": "hi"}]
CALL = "why</think>\n\nLooking.\n\n" + call("get_w", city="Rome", days="3")


def test_chat(site, client) -> None:
    site.say("why</think>\n\nHello there")
    done = client.chat.completions.create(model="m", messages=MESSAGES, max_tokens=50)
    (choice,) = done.choices
    assert (choice.message.content, choice.finish_reason) == ("Hello there", "stop")
    assert choice.message.model_extra["reasoning_content"] == "why"
    assert done.usage.total_tokens == done.usage.prompt_tokens + done.usage.completion_tokens


def test_chat_streamed_with_tools(site, client) -> None:
    site.say(CALL, size=3)
    with client.chat.completions.stream(
        model="m", messages=MESSAGES, tools=[WX], stream_options={"include_usage": True}
    ) as stream:
        kinds = {event.type for event in stream}
        done = stream.get_final_completion()
    assert {
        "chunk",
        "content.delta",
        "tool_calls.function.arguments.delta",
        "tool_calls.function.arguments.done",
    } <= kinds
    (choice,) = done.choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Looking."
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"city": "Rome", "days": 3}
    assert done.usage.prompt_tokens > 0
    whole = client.chat.completions.create(model="m", messages=MESSAGES, tools=[WX])
    assert whole.choices[0].message.tool_calls[0].function.name == "get_w"
    history = [
        *MESSAGES,
        whole.choices[0].message,
        {"role": "tool", "tool_call_id": whole.choices[0].message.tool_calls[0].id, "content": "sun"},
    ]
    site.say("done</think>\n\nIt is sunny.")
    assert (
        client.chat.completions.create(model="m", messages=history, tools=[WX]).choices[0].message.content
        == "It is sunny."
    )


class Answer(BaseModel):
    a: int


def test_a_form_is_parsed(site, client) -> None:
    site.say('so</think>\n\n{"a": 5}')
    done = client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Answer)
    assert done.choices[0].message.parsed == Answer(a=5)
    parsed = client.responses.parse(model="m", input="x", text_format=Answer)
    assert parsed.output_parsed == Answer(a=5)


def test_b08_a_long_reading_keeps_the_client_alive(other_site, closing) -> None:
    patient = other_site(sign=0.1)
    patient.say("ok</think>\n\nthere", size=2, reading_ms=40)
    slow = closing(openai.OpenAI(base_url=f"{patient.url}/v1", api_key="none", max_retries=0, timeout=0.9))
    prompt = "word " * 2000
    messages = [{"role": "user", "content": prompt}]
    with slow.chat.completions.create(model="m", messages=messages, stream=True) as stream:
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == "there"
    with slow.responses.create(model="m", input=prompt, stream=True) as events:
        assert [event.response.output_text for event in events if event.type == "response.completed"] == ["there"]


def test_several_answers_and_log_probabilities(site, client) -> None:
    site.say("a</think>\n\none", "b</think>\n\ntwo")
    done = client.chat.completions.create(
        model="m", messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, seed=3, temperature=1
    )
    assert [choice.index for choice in done.choices] == [0, 1]
    assert {choice.message.content for choice in done.choices} == {"one", "two"}
    assert done.choices[0].logprobs.content[0].top_logprobs[0].logprob <= 0


def test_completions(site, client) -> None:
    site.say("one", "two", "three")
    done = client.completions.create(model="m", prompt=["a", "b"], max_tokens=5)
    assert [choice.text for choice in done.choices] == ["one", "two"]
    stream = client.completions.create(model="m", prompt="a", max_tokens=5, stream=True, logprobs=1)
    assert "".join(chunk.choices[0].text for chunk in stream) == "three"


def test_responses(site, client) -> None:
    site.say(CALL)
    tool = {"type": "function", **WX["function"], "strict": False}
    done = client.responses.create(model="m", input="hi", tools=[tool], reasoning={"effort": "low"}, store=False)
    assert [item.type for item in done.output] == ["reasoning", "message", "function_call"]
    assert done.output_text == "Looking."
    assert json.loads(done.output[2].arguments) == {"city": "Rome", "days": 3}
    result = {"type": "function_call_output", "call_id": done.output[2].call_id, "output": "sun"}
    site.say("ok</think>\n\nSunny.")
    again = client.responses.create(
        model="m", input=[{"role": "user", "content": "hi"}, *done.output, result], tools=[tool]
    )
    assert again.output_text == "Sunny."


def test_responses_streamed(site, client) -> None:
    site.say(CALL, size=4)
    tool = {"type": "function", **WX["function"], "strict": False}
    with client.responses.stream(model="m", input="hi", tools=[tool]) as stream:
        kinds = [event.type for event in stream]
        done = stream.get_final_response()
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert {
        "response.reasoning_text.delta",
        "response.output_text.delta",
        "response.function_call_arguments.delta",
    } <= set(kinds)
    assert done.output_text == "Looking."
    assert done.usage.output_tokens_details.reasoning_tokens == 2


@pytest.mark.parametrize(("more", "kind"), [
    ({"temperature": -1}, openai.BadRequestError),
    ({"extra_body": {"invented": 1}}, openai.BadRequestError),
    ({"messages": []}, openai.BadRequestError),
], ids=str)  # fmt: skip
def test_errors_are_the_clients_own(client, more, kind) -> None:
    for stream in (False, True):
        with pytest.raises(kind) as caught:
            client.chat.completions.create(**{"model": "m", "messages": MESSAGES, "stream": stream, **more})
        assert caught.value.body["type"] == "invalid_request_error"


def test_faults_and_limits_are_errors_of_the_client(site, client, other_site, closing) -> None:
    site.say(turn("a</think>\n\nb", fault="raise"))
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="m", messages=MESSAGES)
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    with pytest.raises(openai.InternalServerError):
        client.embeddings.create(model="m", input="x")
    locked = other_site(keys={"a": "right"})
    with pytest.raises(openai.AuthenticationError):
        closing(openai.OpenAI(base_url=f"{locked.url}/v1", api_key="wrong")).models.list()
    right = closing(openai.OpenAI(base_url=f"{locked.url}/v1", api_key="right"))
    assert [model.id for model in right.models.list()] == ["scripted"]
    assert right.models.retrieve("scripted").owned_by == "strata"
    with pytest.raises(openai.NotFoundError):
        right.models.retrieve("other")


def test_a_client_that_stops_reading_ends_the_work(site, client) -> None:
    site.say(turn("</think>\n\n" + "x" * 3000, size=1, delay_ms=3))
    with client.chat.completions.create(model="m", messages=MESSAGES, stream=True) as stream:
        for number, _ in enumerate(stream):
            if number > 5:
                break
    site.script.rest(2)


def test_many_at_once(site) -> None:
    site.say(*(turn(f"</think>\n\nanswer {i}", size=2, delay_ms=1) for i in range(12)))

    async def main() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{site.url}/v1", api_key="none") as several:
            made = [several.chat.completions.create(model="m", messages=MESSAGES) for _ in range(12)]
            return [done.choices[0].message.content for done in await asyncio.gather(*made)]

    assert sorted(asyncio.run(main())) == sorted(f"answer {i}" for i in range(12))


def test_kept_responses_are_gone_on_with_by_name(site, other_site, closing) -> None:
    keeping = other_site(responses=2, keys={"a": "ka", "b": "kb"})
    one = closing(openai.OpenAI(base_url=f"{keeping.url}/v1", api_key="ka"))
    other = closing(openai.OpenAI(base_url=f"{keeping.url}/v1", api_key="kb"))
    site.say("first</think>\n\nI am one.", "second</think>\n\nI am two.", "third</think>\n\nI am three.")
    first = one.responses.create(model="m", input="who", instructions="be brief")
    assert first.store
    second = one.responses.create(model="m", input="and then", previous_response_id=first.id, stream=True)
    done = next(event.response for event in second if event.type == "response.completed")
    messages = [
        {"role": "user", "content": "who"},
        {"role": "assistant", "content": "I am one.", "reasoning_content": "first"},
        {"role": "user", "content": "and then"},
    ]
    assert done.usage.input_tokens == len(site.tokens(messages=messages))
    assert one.responses.retrieve(first.id).output_text == "I am one."
    with pytest.raises(openai.NotFoundError):
        other.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError, match="no response"):
        other.responses.create(model="m", input="x", previous_response_id=first.id)
    third = one.responses.create(model="m", input="x", store=False)
    with pytest.raises(openai.NotFoundError):
        one.responses.retrieve(third.id)
    one.responses.delete(done.id)
    with pytest.raises(openai.NotFoundError):
        one.responses.retrieve(done.id)
    for _ in range(2):  # two newer ones
        one.responses.create(model="m", input="x")
    with pytest.raises(openai.BadRequestError):
        one.responses.create(model="m", input="x", previous_response_id=first.id)
