"""`strata serve` as a process: cases I07, Q01, Q03 and J07 of the engine's death."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from strata.cli.main import main
from strata.cli.serve import _options
from strata.config import resolve
from support.site import turn

ROOT = Path(__file__).parents[2]


class Process:
    """A server started by its command."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", "strata", "serve", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "XDG_CONFIG_HOME": "/nonexistent", **environment}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
        )

    def port(self) -> int:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if " at http://" in line:
                return int(line.rsplit(":", 1)[1])
        raise AssertionError("it did not start")

    def wait_ready(self, port: int) -> None:
        end = time.monotonic() + 20
        while request(port, "GET", "/health")[0] != 200:
            assert time.monotonic() < end
            time.sleep(0.02)

    def ends(self, seconds: float = 100) -> tuple[int, str]:
        _, error = self.process.communicate(timeout=seconds)
        return self.process.returncode, error


def request(port: int, method: str, path: str, body: dict | None = None, seconds: float = 20) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=seconds)
    try:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.fixture
def start(tmp_path):
    made: list[Process] = []

    def starting(*turns: dict | str, more: tuple[str, ...] = ()) -> Process:
        script = tmp_path / "script.json"
        script.write_text(
            json.dumps({"turns": [turn(one) if isinstance(one, str) else one for one in turns]}), encoding="utf-8"
        )
        made.append(Process("--engine", "scripted", "--script", str(script), "--port", "0", *more))
        return made[-1]

    yield starting
    for one in made:
        one.process.kill()
        one.process.wait()
        for pipe in (one.process.stdout, one.process.stderr):
            assert pipe is not None
            pipe.close()


def ask(port: int, begun: threading.Event | None = None, **more) -> bytes:
    body = {"messages": [{"role": "user", "content": "hi"}], **more}
    data = json.dumps(body).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as link:
        link.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(data)
            + data
        )
        found = b""
        while part := link.recv(1 << 16):
            found += part
            if begun is not None:
                begun.set()
        return found


def until(port: int, number: bytes) -> None:
    end = time.monotonic() + 20
    while number not in request(port, "GET", "/metrics")[1]:
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_i07_a_signal_ends_streams_in_good_order(start, number) -> None:
    from concurrent.futures import ThreadPoolExecutor

    slow = turn("</think>\n\n" + "x" * 8000, size=1, delay_ms=5)
    more = ("--conversations", "3", "--drain", "0.3", "--reading-ms", "400")
    process = start(slow, slow, slow, turn("</think>\n\nqueued"), more=more)
    port = process.port()
    process.wait_ready(port)
    with ThreadPoolExecutor(4) as pool:
        begun = threading.Event()
        streamed = pool.submit(ask, port, begun, stream=True)
        assert begun.wait(20)
        whole = pool.submit(ask, port)
        until(port, b'num_requests_running{model_name="scripted"} 2.0')
        long = [{"role": "user", "content": "word " * 6000}]  # which takes forty seconds to be read
        reading = pool.submit(ask, port, messages=long)
        until(port, b'num_requests_running{model_name="scripted"} 3.0')
        queued = pool.submit(ask, port)
        until(port, b'num_requests_waiting{model_name="scripted"} 1.0')
        began = time.monotonic()
        process.process.send_signal(number)
        code, error = process.ends()
        assert time.monotonic() - began < 8  # five seconds, and a busy machine
        assert code == 0, error
        text = streamed.result()
        assert text.startswith(b"HTTP/1.1 200")
        assert b'"error":{' in text
        assert b"data: [DONE]" in text
        assert text.count(b"HTTP/1.1") == 1
        for one in (whole.result(), reading.result(), queued.result()):
            assert one.startswith(b"HTTP/1.1 503")
            assert b"ending" in one
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_i07_what_is_nearly_done_may_finish(start) -> None:
    slow = ("--drain", "5", "--loading-ms", "300", "--reading-ms", "50")
    process = start(turn("</think>\n\n" + "x" * 60, size=1, delay_ms=10), more=slow)
    port = process.port()
    assert request(port, "GET", "/health")[0] == 503
    process.wait_ready(port)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        streamed = pool.submit(ask, port, stream=True)
        time.sleep(0.2)
        process.process.terminate()
        text = streamed.result()
    assert b'"finish_reason":"stop"' in text
    assert process.ends()[0] == 0


def test_t01_what_is_asked_while_the_model_loads_waits_for_it(start) -> None:
    process = start("</think>\n\nfine", more=("--loading-ms", "2500", "--keep-alive", "0.2"))
    port = process.port()
    assert request(port, "GET", "/health")[0] == 503
    from concurrent.futures import ThreadPoolExecutor

    question = {"messages": [{"role": "user", "content": "hi"}]}
    counted = request(port, "POST", "/v1/messages/count_tokens", question)
    assert counted[0] == 200
    assert request(port, "GET", "/health")[0] == 503, "this needs no model"
    with ThreadPoolExecutor(3) as pool:
        whole = pool.submit(request, port, "POST", "/v1/chat/completions", question)
        streamed = pool.submit(ask, port, stream=True)
        raw = pool.submit(request, port, "POST", "/v1/completions", {"prompt": "x"})
        assert whole.result()[0] == 200
        assert b"fine" in whole.result()[1]
        assert b": waiting for the model" in streamed.result()
        assert streamed.result().endswith((b"data: [DONE]\n\n", b"0\r\n\r\n"))
        assert raw.result()[0] == 200
    assert request(port, "GET", "/health")[0] == 200


def test_i07_a_second_signal_ends_it_at_once(start) -> None:
    process = start(turn("x" * 4000, size=1, delay_ms=5), more=("--drain", "60"))
    port = process.port()
    process.wait_ready(port)
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(ask, port, stream=True)
        time.sleep(0.2)
        began = time.monotonic()
        process.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        assert process.process.poll() is None
        process.process.send_signal(signal.SIGINT)
        code, _ = process.ends()
    assert time.monotonic() - began < 8  # five seconds, and a busy machine
    assert code == 0


def test_a_dead_engine_is_an_error_of_its_request_and_the_next_is_answered(start) -> None:
    process = start(turn("a</think>\n\nb", fault="die"), "a</think>\n\nfine")
    port = process.port()
    process.wait_ready(port)
    text = ask(port, stream=True)
    assert b'"code":"engine_died"' in text
    assert b"data: [DONE]" in text
    status, body = request(port, "POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    assert status == 200
    assert b"fine" in body
    assert b'strata:engine_restarts_total{model_name="scripted"} 1.0' in request(port, "GET", "/metrics")[1]
    request(port, "POST", "/v1/chat/completions", {"messages": 5})
    process.process.terminate()
    code, log = process.ends()
    assert code == 0
    for line in (
        "/v1/chat/completions: error (500 engine_died)",
        "/v1/chat/completions: stop, prompt",
        "refused with 400",
    ):
        assert line in log


@pytest.fixture
def fails(capsys, monkeypatch):
    """Runs a command line that does not get as far as a model."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")

    def failing(*arguments: str, code: int) -> str:
        assert main(["serve", *arguments]) == code
        error = str(capsys.readouterr().err)
        assert "Traceback" not in error
        return error

    return failing


def test_q01_mistyped_options_and_settings_are_named(tmp_path, fails, monkeypatch) -> None:
    assert "--model" in fails("--mdoel", "x", code=2)
    assert "--port" in fails("--prot", "1", code=2)
    config = tmp_path / "config.toml"
    for text, named in (
        ("prot = 1", "port"),
        ('port = "a"', "port"),
        ("[server]\nport = 1", "server"),
        ("port = 1\nport = 2", "TOML"),
    ):
        config.write_text(text, encoding="utf-8")
        assert named in fails("--config", str(config), code=2)
    table = '[[model]]\nfile = "pebble"\npreload = true\n'
    for text, named in (
        (table.replace("preload", "prelaod"), "did you mean preload?"),
        (table + "port = 1", "belongs at the top of the file"),
        ('name = "x"\n' + table, "name is for a single model"),
        (table + '[[model]]\nfile = "pebble-iq3"\npreload = true', "loaded_models lets 1 be in memory"),
    ):
        config.write_text(text, encoding="utf-8")
        assert named in fails("--config", str(config), code=2)
    assert "key" in fails("--api-key", "a=", code=2)
    assert "cannot be read" in fails("--api-key-file", str(tmp_path / "none"), code=2)
    assert "any web page" in fails("--allow-origin", "*", code=2)
    assert "--script" in fails("--engine", "scripted", code=2)
    assert "--reading-ms" in fails("--reading-ms", "5", code=2)
    monkeypatch.setenv("STRATA_PRT", "1")
    assert "STRATA_PORT" in fails(code=2)


def test_a_byte_order_mark_is_no_part_of_a_key(tmp_path) -> None:
    file = tmp_path / "keys.txt"
    file.write_text("\ufeffsecret\n", encoding="utf-8")
    resolved = resolve({"api_key_file": str(file)}, environment={})
    assert list(_options(resolved.settings, resolved).keys.values()) == ["secret"]


def test_q03_every_way_not_to_listen_has_its_own_words(fails, site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        text = fails("--port", str(other.getsockname()[1]), code=1)
        assert "another program has this port" in text
    assert "no address of this machine" in fails("--host", "203.0.113.1", code=1)
    assert "is no address" in fails("--host", "no such host", code=1)
    assert "65535" in fails("--port", "70000", code=2)
    assert "another strata server has this port" in fails("--port", str(site.port), code=1)


def test_q03_a_port_without_rights() -> None:
    import errno

    from strata.server.options import Options
    from strata.server.serving import _why

    assert "may not use port 80" in _why(OSError(errno.EACCES, "Permission denied"), Options(port=80))


def test_a_model_that_cannot_be_loaded_ends_the_server_with_the_reason(start) -> None:
    process = start("ok", more=("--context", "1"))
    code, error = process.ends()
    assert code == 2, error  # found before anything is loaded
    process = Process("--port", "0", "--context", "1000000")
    code, error = process.ends()  # which closes its pipes
    assert code == 1
    assert "context" in error.splitlines()[-1]
    assert "Traceback" not in error


def test_models_of_a_config_file_are_served(tmp_path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(
        '[[model]]\nfile = "pebble"\naliases = ["gpt-*"]\nthreads = 1\n'
        '[[model]]\nname = "gone"\nfile = "./gone.gguf"\n',
        encoding="utf-8",
    )
    process = Process("--port", "0", "--config", str(config), "--cache-folder", str(tmp_path / "kept"))
    try:
        port = process.port()
        assert request(port, "GET", "/health")[0] == 200
        models = json.loads(request(port, "GET", "/v1/models")[1])["data"]
        assert [(one["id"], one["status"]["value"]) for one in models] == [("pebble", "unloaded"), ("gone", "unloaded")]
        question = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        status, body = request(port, "POST", "/v1/messages", {**question, "model": "gone"})
        assert status == 503
        assert b"gone.gguf" in body
        status, body = request(port, "POST", "/v1/messages", {**question, "model": "gpt-7"}, seconds=300)
        assert status == 200
        assert json.loads(body)["model"] == "pebble"
        assert request(port, "GET", "/v1/models/gpt-7")[1].count(b'"loaded"') == 1
        process.process.terminate()
        code, log = process.ends()
        assert code == 0, log
        assert re.search(r"pebble: loaded in [\d.]+ s, on cpu: [\d.]+ MB of weights", log), log
        assert (tmp_path / "kept" / "pebble").is_dir()
    finally:
        if process.process.poll() is None:
            process.process.kill()
            process.ends()


def test_a_name_that_is_no_text_is_shown_as_one(start) -> None:  # case M16
    process = start("ok", more=("--name", os.fsdecode(b"caf\xe9")))
    port = process.port()
    process.wait_ready(port)
    status, body = request(port, "GET", "/v1/models")
    assert (status, json.loads(body)["data"][0]["id"]) == (200, "caf\ufffd")
    question = {"messages": [{"role": "user", "content": "Hi"}], "reasoning_effort": "none"}
    assert request(port, "POST", "/v1/chat/completions", question)[0] == 200
