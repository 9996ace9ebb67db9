"""Whatever a model writes, and however it is cut: a stream says what the answer in one piece says, on every route."""

import json
import random

import pytest

from support.site import ANOW, AWX, NOW, WX, call

PARTS = (
    "plain words",
    " ",
    "\n\n",
    "<think>",
    "</think>",
    "</think>\n\n",
    "😀漢",
    "<tool_call>",
    "</tool_call>",
    "<tool_",
    "<function=now>",
    "</function>\n</tool_call>",
    "<parameter=city>\n",
    "\n</parameter>",
    "<|im",
    "e\u0301",
    '"\\',
    "{",
    call("now"),
    call("other", a="b"),
    call("get_w", city="Rome"),
    call("get_w", city="a </parameter> b", days="3", tags='["x"]'),
    call("get_w", days="no", more="{1"),
)
KEPT = ("type", "text", "thinking", "signature", "name", "input")


def blocks(events) -> list[dict]:
    """The blocks of a message stream, as a client puts them together; calls that were cut off are left out."""
    found: list[dict] = []
    for name, value in events.items:
        if name == "content_block_start":
            found.append({**value["content_block"], "json": ""})
        elif name == "content_block_delta":
            delta = value["delta"]
            for key in ("text", "thinking", "signature"):
                found[-1] |= {key: found[-1].get(key, "") + delta[key]} if key in delta else {}
            found[-1]["json"] += delta.get("partial_json", "")
    cut = events.items[-2][1]["delta"]["stop_reason"] == "max_tokens"
    for block in found:
        if block["type"] == "tool_use":
            try:
                block["input"] = json.loads(block["json"] or "{}")
            except ValueError:
                assert cut
                block["input"] = None
    return [{key: block[key] for key in KEPT if key in block} for block in found if block.get("input", 0) is not None]


def plain(items: list[dict]) -> list[dict]:
    return [{key: value for key, value in item.items() if key not in {"id", "call_id"}} for item in items]


@pytest.mark.parametrize("seed", range(25))
def test_a_stream_says_what_the_whole_answer_says(site, seed) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice(PARTS) for _ in range(chance.randrange(1, 9)))
    site.say(text, size=chance.choice((1, 2, 5, None)))
    most = chance.choice((5, 20, 60, 400))
    stop = {} if chance.random() < 0.7 else {"stop": ["words", "Ro"]}
    effort = chance.choice(("none", "high"))

    more = {"tools": [WX, NOW], "max_tokens": most, "reasoning_effort": effort, **stop}
    streamed, whole = site.chat_stream(**more), site.chat(**more).json["choices"][0]
    message = whole["message"]
    assert streamed.items[-1][1] == "[DONE]"
    assert streamed.delta("content") == (message["content"] or "")
    assert streamed.delta("reasoning_content") == message.get("reasoning_content", "")
    assert streamed.reasons == [whole["finish_reason"]]
    made = [(one["name"], one["arguments"]) for one in streamed.calls]
    assert made == [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls", [])]
    for _, arguments in made if whole["finish_reason"] == "tool_calls" else []:
        assert isinstance(json.loads(arguments), dict)

    thinking = {"type": "disabled" if effort == "none" else "adaptive"}
    more = {"tools": [AWX, ANOW], "max_tokens": most, "thinking": thinking}
    events, whole = site.message_stream(**more), site.message(**more).json
    assert events.items[-1][0] == "message_stop"
    kept = [{key: block[key] for key in KEPT if key in block} for block in whole["content"]]
    assert blocks(events) == kept
    assert events.items[-2][1]["delta"]["stop_reason"] == whole["stop_reason"]
    assert events.items[-2][1]["usage"] == whole["usage"]

    flat = [{"type": "function", **tool["function"]} for tool in (WX, NOW)]
    more = {"tools": flat, "max_output_tokens": most, "reasoning": {"effort": effort}}
    last, whole = site.response_stream(**more).values[-1], site.response(**more).json
    assert last["type"] == f"response.{whole['status']}"
    assert plain(last["response"]["output"]) == plain(whole["output"])
    assert last["response"]["usage"] == whole["usage"]
