"""Health, numbers and logs: cases T01 to T07."""

import threading
import time
from collections.abc import Sequence

from strata.loading.files import ModelFile
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Client, ScriptedEngine
from support.site import Site, number, turn


def test_t01_health_is_503_while_the_model_loads(tmp_path) -> None:
    file = tmp_path / "s.json"
    file.write_text('{"turns": [{"pieces": ["ok"]}]}', encoding="utf-8")

    class Early(Site):
        def __init__(self, client: Client) -> None:
            loading = Served(client, ModelFile.open(None), "s")
            client.wait_ready, waiting = (lambda *_: None), client.wait_ready  # type: ignore[method-assign,assignment]
            loading._ready, ready = object(), None  # type: ignore[assignment]
            super().__init__(client, None, Options(port=0, drain=0.1), loading)  # type: ignore[arg-type]
            client.wait_ready = waiting  # type: ignore[method-assign]
            loading._ready = ready

    with Client(ScriptedEngine(str(file), loading_ms=1500)) as client:
        site = Early(client)
        try:
            states = []
            end = time.monotonic() + 10
            while time.monotonic() < end:
                reply = site.get("/health")
                states.append((reply.status, reply.json["status"]))
                if reply.status == 200:
                    break
                assert reply.headers["retry-after"] == "1"
                for early in (site.chat(), site.message(), site.response(), site.complete()):
                    assert early.status in {200, 503}
                    assert early.status == 200 or early.headers["retry-after"] == "1"
                assert site.get("/v1/models").status == 200
                assert site.get("/live").status == 200
                time.sleep(0.05)
            assert states[0] == (503, "loading")
            assert states[-1] == (200, "ok")
            assert site.chat().status == 200
        finally:
            site.close()


def test_t03_each_dialect_counts_in_its_own_meaning(site) -> None:
    site.say({"pieces": ["x"], "cached": 15})
    prompt = [{"role": "user", "content": "some words " * 10}]
    chat = site.chat(prompt, reasoning_effort="none").json["usage"]
    message = site.message(prompt).json["usage"]
    response = site.response(prompt, reasoning={"effort": "none"}).json["usage"]
    whole = len(site.tokens(messages=prompt, reasoning_effort="none"))
    assert (chat["prompt_tokens"], chat["prompt_tokens_details"]["cached_tokens"]) == (whole, 15)
    assert chat["total_tokens"] == chat["prompt_tokens"] + chat["completion_tokens"]
    assert (message["input_tokens"], message["cache_read_input_tokens"], message["cache_creation_input_tokens"]) == (
        whole - 15,
        15,
        0,
    )
    assert (response["input_tokens"], response["input_tokens_details"]["cached_tokens"]) == (whole, 15)
    streamed = site.chat_stream(prompt, reasoning_effort="none", stream_options={"include_usage": True})
    assert streamed.values[-1]["usage"] == chat
    events = site.message_stream(prompt)
    (delta,) = [value for name, value in events.items if name == "message_delta"]
    assert delta["usage"] == message
    start = events.items[0][1]["message"]["usage"]
    assert {**start, "output_tokens": message["output_tokens"]} == message
    assert site.response_stream(prompt, reasoning={"effort": "none"}).values[-1]["response"]["usage"] == response


def test_t04_rates_count_what_was_done(site) -> None:
    site.say(turn("x" * 20, size=1, delay_ms=20, cached=400), reading_ms=50)
    timings = site.chat("word " * 500, reasoning_effort="none").json["timings"]
    assert timings["cache_n"] == 400
    assert timings["prompt_n"] < 200
    assert timings["prompt_per_second"] < 1.2 * timings["prompt_n"] / 0.1
    assert 5 < timings["predicted_per_second"] < 75
    events = site.chat_stream("word " * 500, reasoning_effort="none")
    assert events.values[-1]["timings"]["cache_n"] == 400


def test_t06_health_answers_while_the_server_is_busy(site) -> None:
    site.say(*[turn("x" * 150, size=1, delay_ms=10)] * 7, "read", reading_ms=10, conversations=8)
    threads = [threading.Thread(target=site.chat_stream, kwargs={"max_tokens": 200}) for _ in range(7)]
    threads.append(threading.Thread(target=site.chat_stream, args=("word " * 6000,)))
    for thread in threads:
        thread.start()
    rounds = []
    for _ in range(3):  # the clients are threads of this process, and the machine may be busy with others
        times = []
        for path in ("/health", "/metrics", "/v1/models") * 10:
            began = time.monotonic()
            assert site.get(path).status == 200
            times.append(time.monotonic() - began)
        rounds.append(max(times))
    for thread in threads:
        thread.join()
    assert min(rounds) < 0.2


def _settled(site: Site, names: Sequence[str]) -> list[float]:
    """Numbers that no longer move: an engine tells its own a little after what it answers."""
    last: list[float] = []
    while last != (now := [number(site, name) for name in names]):
        last = now
        time.sleep(0.5)
    return now


def test_t07_numbers_add_up(site) -> None:
    names = (
        "vllm:prompt_tokens_total",
        "vllm:generation_tokens_total",
        "vllm:prefix_cache_hits_total",
        "vllm:prefix_cache_queries_total",
    )
    before = _settled(site, names)
    answered = number(site, "vllm:request_success_total", finished_reason="stop")
    site.say({"pieces": ["a", "b"], "cached": 5})
    usage = site.chat().json["usage"]
    after = _settled(site, names)
    assert [b - a for a, b in zip(before, after, strict=True)] == [usage["prompt_tokens"], 3, 5, usage["prompt_tokens"]]
    assert number(site, "vllm:request_success_total", finished_reason="stop") == answered + 1
    assert number(site, "strata:engine_state", state="ready") == 1
    site.get("/nobody/made/this/route/up")
    text = site.get("/metrics").body.decode()
    assert "nobody" not in text
    assert 'route="none",status="404"' in text


def test_the_log_has_one_line_a_request_and_no_word_of_it(site, caplog) -> None:
    caplog.set_level("DEBUG")
    site.say("the secret answer")
    site.chat("the secret question", tools=[{"type": "function", "function": {"name": "secret_tool"}}])
    site.chat([{"role": "secret", "content": "the secret question"}])
    site.post("/v1/messages", raw=b'{"secret": [}')
    site.script.rest()
    assert "/v1/chat/completions: stop, prompt" in caplog.text
    assert "secret" not in caplog.text
