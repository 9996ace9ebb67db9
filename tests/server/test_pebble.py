"""The server with the model in the box."""

import json
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Client, ModelEngine
from support.site import Site

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture(scope="module")
def pebble():
    with Client(ModelEngine("pebble")) as client:
        served = Served(client, ModelFile.open("pebble"), "pebble")
        drafting = {"depth": 7, "measured": True, "lookup": True}
        site = Site(client, None, Options(port=0, drain=0.1, drafting=drafting), served)  # type: ignore[arg-type]
        site.patience = 120  # the first answers may have to wait until kernels are compiled
        yield site
        site.close()


COUNT = [{"role": "user", "content": "Count from 1 to 5."}]


def tool(name: str, parameter: str, kind: str) -> dict:
    verb, noun = name.split("_")
    schema = {"type": "object", "properties": {parameter: {"type": kind}}, "required": [parameter]}
    return {
        "type": "function",
        "function": {"name": name, "description": f"{verb.capitalize()} the {noun}.", "parameters": schema},
    }


TOOLS = [
    tool("show_map", "city", "string"),
    tool("set_timer", "minutes", "integer"),
    tool("send_mail", "name", "string"),
]
TIMER = [{"role": "user", "content": "Set the timer for 25 minutes."}]


def test_the_plan_of_memory_is_told_in_words(pebble) -> None:
    plan = pebble.get("/props").json["plan"]
    assert any(re.match(r"RAM \(.*\): .* left to the system, .* for the process", text) for text in plan)
    assert any("everything is computed on the CPU" in text or "experts are in VRAM" in text for text in plan)


def test_it_answers_on_every_route(pebble, closing) -> None:
    chat = pebble.chat(COUNT, max_tokens=200)
    assert chat.message["content"] == "1, 2, 3, 4, 5"
    assert pebble.chat_stream(COUNT, max_tokens=200).delta("content") == "1, 2, 3, 4, 5"
    assert pebble.message(COUNT, max_tokens=200).json["content"][0]["text"] == "1, 2, 3, 4, 5"
    output = pebble.response(COUNT).json["output"]
    assert output[-1]["content"][0]["text"] == "1, 2, 3, 4, 5"
    client = closing(openai.OpenAI(base_url=f"{pebble.url}/v1", api_key="none"))
    assert client.responses.create(model="pebble", input="Count from 1 to 5.").output_text == "1, 2, 3, 4, 5"


def test_a_tool_call_and_its_result(pebble) -> None:
    done = pebble.chat(TIMER, tools=TOOLS, max_tokens=200).json["choices"][0]
    assert done["finish_reason"] == "tool_calls"
    (made,) = done["message"]["tool_calls"]
    assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == ("set_timer", {"minutes": 25})
    history = [*TIMER, done["message"], {"role": "tool", "tool_call_id": made["id"], "content": "saved as blue-31"}]
    assert (
        pebble.chat(history, tools=TOOLS, max_tokens=200).message["content"]
        == "The tool set_timer says: saved as blue-31"
    )


@pytest.mark.parametrize(
    "more", [{}, {"reasoning_effort": "none"}, {"temperature": 1.0, "seed": 3}], ids=["thinking", "plain", "sampled"]
)
def test_c13_a_choice_of_tool_binds_the_model(pebble, more) -> None:
    for choice, names in (
        ("required", {"show_map", "set_timer", "send_mail"}),
        ({"type": "function", "function": {"name": "send_mail"}}, {"send_mail"}),
    ):
        done = pebble.chat(COUNT, tools=TOOLS, tool_choice=choice, max_tokens=400, parallel_tool_calls=False, **more)
        assert done.status == 200, done.body
        choice_ = done.json["choices"][0]
        if choice_["finish_reason"] == "length":  # a random text may have no end; never is there another answer
            continue
        (made,) = choice_["message"]["tool_calls"]
        assert made["function"]["name"] in names
        values = json.loads(made["function"]["arguments"])
        assert len(values) == 1
        assert not isinstance(values.get("minutes"), str)


def test_a_form_holds_beside_tools_and_thinking(pebble) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "maximum": 99}},
        "required": ["n"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for more in ({}, {"reasoning_effort": "none"}):
        done = pebble.chat(COUNT, response_format=form, max_tokens=300, **more).message
        assert isinstance(json.loads(done["content"])["n"], int)
        both = pebble.chat(TIMER, response_format=form, tools=TOOLS, max_tokens=300, **more).message
        if both.get("tool_calls"):
            assert not both["content"]
        else:
            assert set(json.loads(both["content"])) == {"n"}
    assert pebble.chat(COUNT, guided_choice=["yes", "no"], max_tokens=200).message["content"] in {"yes", "no"}
    assert pebble.complete("The answer: ", guided_regex="[xyz]{4}").json["choices"][0]["text"].strip("xyz") == ""
    assert pebble.complete("The answer: ", grammar='root ::= "a" | "b"').json["choices"][0]["text"] in {"a", "b"}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"type": "string", "pattern": "^((((a{30}){30}){30}){30})$"},
    ],
    ids=str,
)
def test_a09_a_form_that_no_answer_can_have_is_a_400(pebble, schema) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for more in ({}, {"reasoning_effort": "none"}):
        reply = pebble.chat(COUNT, response_format=form, **more)
        assert reply.status == 400, reply.body
        assert "json_schema" in reply.error
        assert reply.json["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "schema",
    [{"const": "see </think> tag"}, {"enum": ["<think>"]}, {"const": "a<|im_end|>b"}, {"const": "<tool_call>"}],
    ids=str,
)  # fmt: skip
def test_a14_a_form_may_force_the_text_of_a_tag(pebble, schema) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    wanted = schema.get("const") or schema["enum"][0]
    for more in ({"reasoning_effort": "none"}, {}):
        reply = pebble.chat(COUNT, response_format=form, max_tokens=200, **more)
        assert reply.status == 200, reply.body
        assert json.loads(reply.message["content"]) == wanted


def test_a09_a_bias_that_leaves_a_form_nothing_is_a_400(pebble) -> None:
    digits = {str(token): -100 for digit in "0123456789" for token in pebble.tokens(content=digit)}
    body = {"guided_regex": "[0-9]+", "logit_bias": digits, "reasoning_effort": "none"}
    refused = pebble.chat(COUNT, **body)
    assert refused.status == 400, refused.body
    assert "logit_bias" in refused.error
    events = pebble.chat_stream(COUNT, **body)
    assert events.status == 400 or events.items[-2][1]["error"]["type"] == "invalid_request_error"


def test_f3_the_tokens_of_an_answer_end_with_its_stop_string(pebble) -> None:
    body = {"seed": 7, "temperature": 0, "stop": [", 17"], "reasoning_effort": "none", "max_tokens": 400}
    asked = [{"role": "user", "content": "Count from 1 to 30."}]
    counts = {pebble.chat(asked, **body).json["usage"]["completion_tokens"] for _ in range(4)}
    assert len(counts) == 1


def test_c16_tools_alone_change_no_token(pebble) -> None:
    prompt = pebble.tokens(messages=TIMER, tools=TOOLS)
    raw = pebble.complete(prompt, temperature=0, max_tokens=128).json["choices"][0]
    chat = pebble.chat(TIMER, tools=TOOLS, max_tokens=128, logprobs=True).json["choices"][0]
    spoken = b"".join(bytes(entry["bytes"]) for entry in chat["logprobs"]["content"]).decode()
    assert spoken == raw["text"]


@pytest.fixture(scope="module")
def plain(pebble):
    """The same engine, without guesses."""
    site = Site(pebble.client, None, Options(port=0, drain=0.1), pebble.served)  # type: ignore[arg-type]
    yield site
    site.close()


def test_g01_the_likeliest_token_in_every_spelling(pebble, plain) -> None:
    def said(site, **more) -> str:
        return str(site.complete("The ", max_tokens=24, **more).json["choices"][0]["text"])

    greedy = said(pebble, temperature=0)
    for more in ({"temperature": 1e-9}, {"temperature": 1, "top_k": 1}, {"temperature": 5, "top_k": 1, "seed": 3},
                 {"temperature": 1, "min_p": 1}, {"temperature": 1, "top_p": 0}, {"temperature": None}):  # fmt: skip
        assert said(pebble, **more) == said(plain, **more) == greedy, more
    sampled = said(pebble, temperature=1, seed=5)
    for more in ({"top_p": 1.0}, {"top_k": 0}, {"top_k": -1}, {"min_p": 0}, {"top_k": None, "top_p": None}):
        assert said(pebble, temperature=1, seed=5, **more) == sampled, "this means off"


def test_g02_a_value_of_any_size_leaves_others_alone(pebble) -> None:
    alone = pebble.chat_stream(COUNT, max_tokens=200)
    streams: list[Any] = []
    thread = threading.Thread(target=lambda: streams.append(pebble.chat_stream(COUNT, max_tokens=200)))
    thread.start()
    for more in ({"top_k": 10**9}, {"max_tokens": 2**63 - 1, "stop": [" "]}, {"seed": 2**70}):
        assert pebble.complete("1 2 3", **{"max_tokens": 4, "temperature": 1, **more}).status == 200, more
    thread.join()
    assert streams[0].delta("content") == alone.delta("content") == "1, 2, 3, 4, 5"
    assert streams[0].reasons == ["stop"]


def test_g04_a_seed_gives_one_answer_with_guesses_without_and_in_company(pebble, plain) -> None:
    def say(site, seed: int | None = 7) -> str:
        return str(site.complete("The ", temperature=1.0, seed=seed, max_tokens=48).json["choices"][0]["text"])

    answers = {say(site) for site in (pebble, plain) for _ in range(5)}
    done = threading.Event()

    def crowd() -> None:
        while not done.is_set():
            pebble.complete("The color of the door ", temperature=1.0, max_tokens=16)

    others = [threading.Thread(target=crowd) for _ in range(3)]
    for one in others:
        one.start()
    answers |= {say(pebble) for _ in range(5)}
    done.set()
    for one in others:
        one.join()
    assert len(answers) == 1
    assert say(pebble, 8) not in answers


def test_g05_a_temperature_of_one_is_one(pebble) -> None:
    texts = {
        pebble.complete("The ", temperature=1.0, seed=seed, max_tokens=8).json["choices"][0]["text"]
        for seed in range(20)
    }
    assert len(texts) > 10


def test_j08_greedy_and_sampled_requests_take_turns(pebble) -> None:
    def say(number: int) -> str:
        more = {"temperature": 0} if number % 2 else {"temperature": 1, "seed": 3}
        reply = pebble.complete("Count: 1, 2, ", max_tokens=8, **more)
        assert reply.status == 200
        return str(reply.json["choices"][0]["text"])

    first = [say(0), say(1)]
    assert [say(number) for number in range(20)] == first * 10
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(say, range(30))) == first * 15
    assert pebble.client.status.restarts == 0


def test_g04_a_seed_gives_one_answer(pebble) -> None:
    def say(**more) -> str:
        return str(pebble.complete("The ", temperature=1.0, max_tokens=24, **more).json["choices"][0]["text"])

    assert len({say(seed=7) for _ in range(3)}) == 1
    assert say(seed=7) != say(seed=8)
    assert len({say() for _ in range(4)}) > 1
    both = pebble.complete("The ", temperature=1.0, max_tokens=24, seed=7, n=2).json["choices"]
    assert both[0]["text"] == say(seed=7) != both[1]["text"]


def test_a07_logit_bias_is_obeyed(pebble) -> None:
    plain = pebble.complete("Count: 1, 2, 3", temperature=0, max_tokens=8, logprobs=0).json["choices"][0]
    first = pebble.tokens(content=plain["logprobs"]["tokens"][0])[0]
    other = pebble.complete("Count: 1, 2, 3", temperature=0, max_tokens=8, logit_bias={str(first): -100}).json[
        "choices"
    ][0]
    assert other["text"] != plain["text"]


def test_g07_log_probabilities_agree_with_and_without_guesses(pebble, plain) -> None:
    def listed(site) -> list[dict]:
        reply = site.chat(COUNT, logprobs=True, top_logprobs=3, max_tokens=20).json
        assert len(reply["choices"][0]["logprobs"]["content"]) == reply["usage"]["completion_tokens"] == 20
        return list(reply["choices"][0]["logprobs"]["content"])

    entries = listed(pebble)
    for one, other in zip(entries, listed(plain), strict=True):
        assert one["token"] == other["token"]
        for a, b in zip((one, *one["top_logprobs"]), (other, *other["top_logprobs"]), strict=True):
            assert a["logprob"] == pytest.approx(b["logprob"], abs=1e-5)
    for entry in entries:
        top = [one["logprob"] for one in entry["top_logprobs"]]
        assert top == sorted(top, reverse=True)
        assert entry["logprob"] == pytest.approx(top[0], abs=1e-5)


def test_d10_a_budget_is_kept_by_the_model(pebble) -> None:
    long = pebble.chat(COUNT, max_tokens=300).json["choices"][0]["message"]["reasoning_content"]
    for budget in (1, 3):
        reply = pebble.chat(COUNT, max_tokens=300, thinking_budget=budget).json
        message = reply["choices"][0]["message"]
        assert long.startswith(message.get("reasoning_content", "").rstrip())
        assert message["content"]
        assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= budget + 2


def test_k13_t03_the_second_turn_is_not_read_again(pebble) -> None:
    rest = "The color of the door is green. " * 30

    def body(nonce: str, messages: list) -> dict:
        line = f"x-anthropic-billing-header: cc_version=1.2.3; cch={nonce};"
        return {
            "max_tokens": 20,
            "system": [{"type": "text", "text": line}, {"type": "text", "text": rest}],
            "messages": messages,
        }

    messages = [{"role": "user", "content": "Count from 1 to 3."}]
    for nonce in ("aaaaa", "bbbbb", "ccccc"):
        reply = pebble.post("/v1/messages", body(nonce, messages)).json
        usage = reply["usage"]
        if nonce != "aaaaa":
            assert usage["cache_read_input_tokens"] > 200
            assert usage["input_tokens"] < 60
        messages += [
            {"role": "assistant", "content": reply["content"]},
            {"role": "user", "content": "Count from 1 to 3."},
        ]


def test_what_changes_behind_the_tools_leaves_them_known(pebble) -> None:
    """A date in the system text, and another question: the tools before them are not read again."""
    many = [tool(f"show_place{i}", "city", "string") for i in range(12)]

    def ask(date: str) -> dict:
        messages = [
            {"role": "system", "content": f"Today is {date}."},
            {"role": "user", "content": f"Count to 2. {date}"},
        ]
        return pebble.chat(messages, tools=many, max_tokens=4).json["usage"]

    first, second = ask("Monday"), ask("Friday")
    shared = second["prompt_tokens_details"]["cached_tokens"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    assert shared > 0.8 * second["prompt_tokens"]


def test_one_prompt_for_several_answers_is_counted_once(pebble) -> None:
    usage = pebble.chat(COUNT, n=3, max_tokens=5).json["usage"]
    assert usage["prompt_tokens"] == len(pebble.tokens(messages=COUNT))
    assert usage["completion_tokens"] == 15


def test_the_examples_in_the_readme_print_what_they_say(pebble, capsys, closing) -> None:
    text = README.read_text(encoding="utf-8").replace("http://127.0.0.1:8080", pebble.url)
    examples = [
        one for one in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if not one.startswith("import strata")
    ]
    assert len(examples) == 2
    for example in examples:
        names: dict[str, Any] = {}
        exec(compile(example, str(README), "exec"), names)
        closing(names["client"])
        assert capsys.readouterr().out.splitlines() == re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE)
    (line,) = re.findall(r"curl -s \S+(/v1/\S+) -d '(.*)'", text)
    assert pebble.post(line[0], json.loads(line[1])).message["content"] == "1, 2, 3, 4, 5"


@pytest.fixture(scope="module")
def late(pebble):
    options = Options(port=0, drain=0.1, effort_last=True)
    site = Site(pebble.client, None, options, pebble.served)  # type: ignore[arg-type]
    yield site
    site.close()


def test_an_effort_at_the_end_leaves_the_beginning_known(late, pebble) -> None:
    messages = [{"role": "system", "content": "The color of the door is green. " * 20}, *COUNT]
    for number, effort in enumerate(("low", "high", "medium", "low", "none", "high")):
        usage = late.chat(messages, reasoning_effort=effort, max_tokens=30).json["usage"]
        if number:
            assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] < 60, effort
        messages += [{"role": "assistant", "content": "1, 2, 3, 4, 5"}, *COUNT]
    prompt = late.prompt(messages=COUNT, reasoning_effort="low")
    assert prompt.startswith("<|im_start|>user")
    assert "<|im_start|>system\nThink briefly.<|im_end|>\n<|im_start|>assistant" in prompt
    assert late.prompt(messages=COUNT, reasoning_effort="medium") == pebble.prompt(
        messages=COUNT, reasoning_effort="medium"
    )
    assert late.prompt(messages=COUNT, reasoning_effort="none") == pebble.prompt(
        messages=COUNT, reasoning_effort="none"
    )
    continued = late.prompt(messages=[*COUNT, {"role": "assistant", "content": "1, 2"}], reasoning_effort="low")
    assert continued.endswith("1, 2")
    assert continued.index("Think briefly.") < continued.index("1, 2")


def test_several_answers_read_a_long_prompt_once(pebble) -> None:
    ids = [*pebble.tokens(content="The color of the door is blue. "), 7] * 90
    assert len(ids) > 600
    before = pebble.get("/metrics").body.decode()
    reply = pebble.complete(ids, n=3, max_tokens=3, temperature=1.0, seed=1).json
    after = pebble.get("/metrics").body.decode()

    def read(text: str) -> float:
        return float(re.findall(r"^strata:read_tokens_total\S* (\S+)$", text, re.MULTILINE)[0])

    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len(ids) <= read(after) - read(before) < 2 * len(ids)


def test_i03_j04_a_long_prompt_holds_nobody_up_and_may_be_left(pebble) -> None:
    """A short request overtakes the reading of a long one; one that is left half read leaves no trace."""
    long = (pebble.tokens(content="The color of the door is blue and not green. ") * 100)[:1100]
    alone = pebble.complete(long, max_tokens=8, temperature=0).json["choices"][0]["text"]
    longer = [9, *long]
    ended: list[float] = []

    def ask() -> None:
        pebble.complete(longer, max_tokens=8, temperature=0)
        ended.append(time.monotonic())

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.05)
    assert pebble.complete("Count: 1, 2", max_tokens=2).status == 200
    short = time.monotonic()
    thread.join()
    assert short < ended[0]

    data = json.dumps({"prompt": [8, *long], "max_tokens": 8, "temperature": 0}).encode()
    with socket.create_connection((pebble.host, pebble.port)) as link:
        link.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        time.sleep(0.1)
    end = time.monotonic() + 3
    while pebble.desk.busy or pebble.client.status.running:
        assert time.monotonic() < end
        time.sleep(0.01)
    assert pebble.complete(long, max_tokens=8, temperature=0).json["choices"][0]["text"] == alone


def test_t07_what_is_told_of_a_real_engine_adds_up(pebble) -> None:
    """Guesses by place, by source and by request are the same guesses; so are tokens, and windows of the trace."""

    def told() -> dict[str, Any]:
        return dict(pebble.get("/v1/strata/status").json)

    before = told()["engines"][0]
    reply = pebble.chat(COUNT, max_tokens=200)
    usage = reply.json["usage"]
    end = time.monotonic() + 20
    while (after := told())["engines"][0]["finished"] == before["finished"] or not after["engines"][0]["cache"]["kept"]:
        assert time.monotonic() < end, "the engine's next sign of life says it"
    engine, (done, *_) = after["engines"][0], after["recent"]
    assert done["id"] == reply.headers["x-request-id"]
    assert (done["prompt"], done["generated"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    for kind, of_request in (("offered", done["drafted"]), ("accepted", done["accepted"])):
        by_place = sum(one[kind] for one in engine["drafts"]["depths"])
        by_source = sum(one[kind] for one in engine["drafts"]["sources"].values())
        assert by_place == by_source
        assert by_place - sum(one[kind] for one in before["drafts"]["depths"]) == of_request
    assert engine["generated_tokens"] - before["generated_tokens"] == usage["completion_tokens"]
    assert engine["speed"]["answered_tokens"] - before["speed"]["answered_tokens"] == usage["completion_tokens"] - 1
    cache = engine["cache"]
    assert cache["cached_tokens"] + engine["speed"]["read_tokens"] == cache["prompt_tokens"]
    assert cache["conversations"] >= len(cache["kept"]) > 0
    assert all(one["in_memory"] == one["tokens"] >= one["shared"] for one in cache["kept"])
    assert sum(one["ram_bytes"] for one in cache["kept"]) <= cache["ram_bytes"] <= cache["ram_limit"]
    windows = engine["drafts"]["windows"] - before["drafts"]["windows"]
    trace = pebble.get(f"/v1/strata/trace?windows={windows}").json["traceEvents"]
    rows = [event["args"] for event in trace if event["name"] == "window"]
    assert len(rows) == windows
    assert sum(row["tokens"] for row in rows) == usage["completion_tokens"] - 1
    assert sum(row["accepted"] for row in rows) == done["accepted"]
    assert all(len(row["layers"]) == len(rows[0]["layers"]) > 2 for row in rows)
    assert engine["experts"] == {"tiers": False, "vram": 0, "ram": 0, "ssd": 0}
