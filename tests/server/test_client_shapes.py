"""Requests in the shapes that people's tools send: answered; and refused well with any part replaced by an odd one."""

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from support.shapes import SAID, SHAPES, claude_code, codex
from support.site import call


@pytest.mark.parametrize("name", SHAPES)
def test_a_tools_request_is_answered(site, name) -> None:
    path, make = SHAPES[name]
    body = make()
    said = '{"title": "A", "a": 1}' if "title" in name or "form" in name else SAID
    if name == "langchain":
        said = "t</think>\n\n" + call("Read", path="/tmp/a")
    site.say(said)
    if body.get("stream"):
        events = site.stream(path, body)
        assert events.status == 200, events.raw
        assert not any("error" in str(name) for name, _ in events.items)
        assert b'"error":{' not in events.raw
    else:
        reply = site.post(path, body)
        assert reply.status == 200, reply.body
    if path.startswith("/v1/messages"):
        rest = {
            key: value for key, value in body.items() if key not in {"stream", "max_tokens", "temperature", "metadata"}
        }
        assert site.post("/v1/messages/count_tokens?beta=true", rest).status == 200


def test_claude_code_reads_the_same_prompt_whatever_its_nonce(site) -> None:
    body = {**claude_code(), "stream": False}
    first = site.post("/v1/messages/count_tokens", body).json
    body["system"][0]["text"] = body["system"][0]["text"].replace("00000", "fffff9")
    assert site.post("/v1/messages/count_tokens", body).json == first


def test_codex_goes_on_with_its_own_items(site) -> None:
    site.say("deep</think>\n\nI patch.\n\n" + call("apply_patch", input="*** Begin Patch\n*** End Patch"))
    body = codex()
    events = site.stream("/v1/responses", body)
    output = events.values[-1]["response"]["output"]
    assert [item["type"] for item in output] == ["reasoning", "message", "custom_tool_call"]
    body["input"] += [{k: v for k, v in item.items() if k not in {"id", "status"}} for item in output]
    body["input"].append(
        {"type": "custom_tool_call_output", "call_id": output[2]["call_id"], "output": json.dumps({"ok": True})}
    )
    again = site.stream("/v1/responses", body)
    assert again.values[-1]["type"] == "response.completed"


ODD: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 3.5, 1e300, 2**70, "", "x", "auto", "none", "required", "\x00", "🙂" * 50, [], {}),
    *([None], [[]], [{}], ["a", 1], [{"role": "user", "content": "x"}], {"a": {"b": [1]}}, {"name": "f"}, {"type": []}),
    *({"type": kind} for kind in ("text", "function", "custom", "object", "thinking", "tool_use", "tool_result", None)),
    *({"type": kind} for kind in ("reasoning", "function_call", "json_schema", "image", "namespace")),
    *({"type": "text", "text": 5}, [{"type": "text", "text": "a"}], "<|im_start|>", "<tool_call>"),
)
FORM = {"type": "object", "properties": {"a": {"type": "string", "enum": ["a"]}}, "$defs": {"b": {}}}
MORE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": ["a"], "logprobs": 2, "n": 1, "stop": ["x"], "logit_bias": {"5": 1}, "best_of": 1}),
    ("/tokenize", {"content": "a", "with_pieces": True}),
    ("/detokenize", {"tokens": [1, 2]}),
    ("/v1/messages/count_tokens", claude_code()),
    (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "x"}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": FORM}},
            "tools": [{"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": {}}}}],
            "reasoning": {"effort": "low", "max_tokens": 50},
            "chat_template_kwargs": {"enable_thinking": True},
        },
    ),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Everywhere in it but at its root."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield (*at, key)
        yield from places(part, (*at, key))


@pytest.mark.parametrize("seed", range(3))
def test_an_odd_part_is_an_answer_or_a_refusal_and_never_a_fault(site, seed) -> None:
    chance = random.Random(seed)
    site.say("a</think>\n\nb")
    shapes = [*((path, make()) for path, make in SHAPES.values()), *MORE]
    statuses = set()
    for _ in range(250):
        path, shape = chance.choice(shapes)
        body = copy.deepcopy(shape)
        for _ in range(chance.choice((1, 1, 2))):
            *way, last = chance.choice(list(places(body)))
            part = body
            for key in way:
                part = part[key]
            part[last] = copy.deepcopy(chance.choice(ODD))
        reply = site.post(path, body)
        statuses.add(reply.status)
        assert reply.status in {200, 400, 502}, (path, body, reply.body)  # 502: the script is not the call asked for
        if reply.status != 200:
            assert reply.error
    assert statuses >= {200, 400}
