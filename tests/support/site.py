"""A live server for tests, and ways to talk to it that hide nothing."""

import asyncio
import contextlib
import faulthandler
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from strata.loading.files import ModelFile
from strata.server.desk import Desk
from strata.server.options import Options
from strata.server.served import Served
from strata.server.serving import bind, server_of
from strata.worker import Client, CustomEngine

CONTEXT = 32768
_TAGS = re.compile(r"(</?think>|</?tool_call>|<\|im_end\|>)")


def pieces(text: str, size: int | None = None) -> list[Any]:
    """A script's pieces: tags are tokens of their own, the rest is cut into so many bytes each."""
    found: list[Any] = []
    for part in _TAGS.split(text):
        if not part:
            continue
        data = part.encode()
        if _TAGS.fullmatch(part) or size is None:
            found.append(part)
        else:
            found += [{"hex": data[i : i + size].hex()} for i in range(0, len(data), size)]
    return found


def turn(text: str, size: int | None = None, **more: Any) -> dict[str, Any]:
    """A script's turn that says a text."""
    return {"pieces": pieces(text, size), **more}


class Script:
    """What the engine behind a site says next."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._number = 0
        self.client: Client | None = None
        self.say("ok")

    def say(self, *turns: str | dict[str, Any], size: int | None = None, **setup: Any) -> None:
        """The turns of the next requests, from the first; texts are cut into `size` bytes."""
        self._number += 1
        listed = [turn(one, size) if isinstance(one, str) else one for one in turns]
        text = json.dumps({"turns": listed, "setup": setup, "number": self._number})
        aside = self.path.with_suffix(".new")
        aside.write_text(text, encoding="utf-8")
        aside.replace(self.path)
        if self.client is not None:
            self.rest()

    def rest(self, seconds: float = 5) -> None:
        """Wait until nothing is under way."""
        assert self.client is not None
        end = time.monotonic() + seconds
        while (status := self.client.status).running + status.waiting:
            assert time.monotonic() < end, f"still under way: {status}"
            time.sleep(0.005)


@dataclass
class Reply:
    """An answer of HTTP in one piece."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"]["message"])

    @property
    def message(self) -> dict[str, Any]:
        return dict(self.json["choices"][0]["message"])


@dataclass
class Events:
    """A stream, whole.

    Attributes:
        items: name and value of each event.
        times: when each arrived, in monotonic seconds.
        comments: lines that readers skip.
    """

    status: int
    headers: dict[str, str]
    raw: bytes
    items: list[tuple[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    comments: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[Any]:
        return [value for _, value in self.items if value != "[DONE]"]

    def delta(self, key: str, index: int = 0) -> str:
        """All pieces of one field of a chat stream's deltas."""
        choices = [c for value in self.values for c in value.get("choices", []) if c["index"] == index]
        return "".join(choice["delta"].get(key) or "" for choice in choices)

    @property
    def reasons(self) -> list[str]:
        choices = [choice for value in self.values for choice in value.get("choices", [])]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"] is not None]

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Tool calls of a chat stream, put together as a client does."""
        found: dict[int, dict[str, Any]] = {}
        for value in self.values:
            for choice in value.get("choices", []):
                for call in choice["delta"].get("tool_calls", []):
                    one = found.setdefault(call["index"], {"arguments": ""})
                    one |= {key: call[key] for key in ("id", "type") if key in call}
                    function = call.get("function", {})
                    one |= {"name": function["name"]} if "name" in function else {}
                    one["arguments"] += function.get("arguments", "")
        return [found[index] for index in sorted(found)]


class Site:
    """A server in a thread."""

    def __init__(self, client: Client, script: Script, options: Options, served: Served | None = None) -> None:
        self.client, self.script = client, script
        self.served = served or Served(client, ModelFile.open(None), "scripted")
        client.wait_ready(30)
        while self.served.known is None:
            time.sleep(0.005)
        self._serve(Desk(self.served, options), options)

    def _serve(self, desk: Desk, options: Options) -> None:
        self.desk = desk
        self._listener = bind(options)
        self.host, self.port = self._listener.getsockname()[:2]
        self._server = server_of(self.desk)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        while not self._server.started:
            time.sleep(0.005)

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            await self._server.serve(sockets=[self._listener])

        asyncio.run(main())

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def say(self, *turns: str | dict[str, Any], size: int | None = None, **setup: Any) -> None:
        self.script.say(*turns, size=size, **setup)

    def close(self) -> None:
        assert self._loop is not None
        if not self._thread.is_alive():
            return
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(20)
        if self._thread.is_alive():
            faulthandler.dump_traceback()
            for task in asyncio.all_tasks(self._loop):
                task.print_stack()
            raise AssertionError("the server does not end")

    patience = 20.0
    """Seconds that a client waits for anything."""

    def connect(self, timeout: float | None = None) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout or self.patience)

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, raw: bytes | None = None
    ) -> Reply:
        connection = self.connect()
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        try:
            connection.request(method, path, data, {"content-type": "application/json", **(headers or {})})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, raw: bytes | None = None, **headers: str) -> Reply:
        return self.request("POST", path, body, headers, raw)

    def stream(self, path: str, body: dict[str, Any], **headers: str) -> Events:
        """All events of a stream; what is no stream comes back without events."""
        connection = self.connect()
        try:
            data = json.dumps({**body, "stream": True}).encode()
            connection.request("POST", path, data, {"content-type": "application/json", **headers})
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            events = Events(response.status, found, b"")
            for block in _blocks(response, events):
                _note(events, block)
            return events
        finally:
            connection.close()

    # the four routes, with what a request needs at least

    def chat(self, content: Any = "hi", **more: Any) -> Reply:
        return self.post("/v1/chat/completions", chat_body(content, **more))

    def chat_stream(self, content: Any = "hi", **more: Any) -> Events:
        return self.stream("/v1/chat/completions", chat_body(content, **more))

    def message(self, content: Any = "hi", **more: Any) -> Reply:
        return self.post("/v1/messages", message_body(content, **more))

    def message_stream(self, content: Any = "hi", **more: Any) -> Events:
        return self.stream("/v1/messages", message_body(content, **more))

    def response(self, content: Any = "hi", **more: Any) -> Reply:
        return self.post("/v1/responses", {"model": "m", "input": content, **more})

    def response_stream(self, content: Any = "hi", **more: Any) -> Events:
        return self.stream("/v1/responses", {"model": "m", "input": content, **more})

    def complete(self, prompt: Any = "hi", **more: Any) -> Reply:
        return self.post("/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 64, **more})

    def tokens(self, **body: Any) -> list[int]:
        """The prompt of a chat request."""
        reply = self.post("/tokenize", body)
        assert reply.status == 200, reply.body
        return list(reply.json["tokens"])

    def prompt(self, **body: Any) -> str:
        """The same as text."""
        return str(self.served.tokenizer.decode(self.tokens(**body), special=True))

    def raw(self, data: bytes, timeout: float = 5) -> bytes:
        """Bytes there, bytes back, until the server closes."""
        with socket.create_connection((self.host, self.port), timeout=timeout) as link:
            link.sendall(data)
            found = b""
            with contextlib.suppress(TimeoutError):
                while part := link.recv(1 << 16):
                    found += part
            return found


def number(site: Site, name: str, **labels: str) -> float:
    """One sample of /metrics."""
    for family in text_string_to_metric_families(site.get("/metrics").body.decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return float(sample.value)
    return 0.0


def chat_body(content: Any = "hi", **more: Any) -> dict[str, Any]:
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    body = {"model": "m", "messages": messages, "temperature": 0, "max_tokens": 64, **more}
    return {name: value for name, value in body.items() if value is not ...}


def message_body(content: Any = "hi", **more: Any) -> dict[str, Any]:
    messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
    body = {"model": "m", "messages": messages, "max_tokens": 64, **more}
    return {name: value for name, value in body.items() if value is not ...}


def _blocks(response: http.client.HTTPResponse, events: Events) -> Iterator[str]:
    waiting = b""
    while part := response.read1(1 << 16):
        events.raw += part
        waiting += part
        while b"\n\n" in waiting:
            block, _, waiting = waiting.partition(b"\n\n")
            yield block.decode()
    assert events.status != 200 or not waiting, waiting


def _note(events: Events, block: str) -> None:
    name, data = "", None
    for line in block.split("\n"):
        if line.startswith(":"):
            events.comments.append(line[1:].strip())
        elif line.startswith("event: "):
            name = line.removeprefix("event: ")
        else:
            assert line.startswith("data: "), line
            data = line.removeprefix("data: ")
    if data is not None:
        events.items.append((name, data if data == "[DONE]" else json.loads(data)))
        events.times.append(time.monotonic())


def engine(path: Path) -> CustomEngine:
    """The engine that a `Script` steers."""
    return CustomEngine("support.rescripted:build", {"file": str(path), "context": CONTEXT})


GET_W = {
    "name": "get_w",
    "description": "weather",
    "parameters": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "metric": {"type": "boolean"},
            "zip": {"type": "string"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": {"type": "object"},
        },
        "required": ["city"],
    },
}
WRITE_F = {
    "name": "write",
    "parameters": {"type": "object", "properties": {"path": {"type": "string"}, "content": {"type": "string"}}},
}
NOW_F = {"name": "now", "parameters": {"type": "object", "properties": {}}}
WX, WRITE, NOW = ({"type": "function", "function": function} for function in (GET_W, WRITE_F, NOW_F))
AWX = {"name": "get_w", "description": "weather", "input_schema": GET_W["parameters"]}
ANOW = {"name": "now", "input_schema": NOW_F["parameters"]}


def call(name: str, **values: str) -> str:
    """A call as the model writes it."""
    inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"


def receive(link: socket.socket) -> bytes:
    """One answer with a length."""
    found = b""
    while b"\r\n\r\n" not in found:
        found += link.recv(1 << 16)
    head, _, rest = found.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length")
    )
    while len(rest) < length:
        rest += link.recv(1 << 16)
    return head + b"\r\n\r\n" + rest
