"""The clients: slow ones, those that leave, and broken ones."""

import asyncio
import contextlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from soaking import dialects
from soaking.wire import Head, Lost, Pace, Wire, request

KINDS = {
    "answer": 64,
    "leave_stream": 9,
    "leave_waiting": 7,
    "leave_reading": 5,
    "leave_whole": 4,
    "half_head": 2,
    "half_body": 2,
    "garbage": 2,
    "bad_json": 2,
    "reset": 2,
    "deaf": 1,
}
"""What a client does next, and how often of 100."""

BY_HAND = 3
"""How often of 100 a client loads or unloads a model, where there are several."""

LONGEST = 600.0
"""Seconds after which an answer counts as lost."""

BUSY = {429, 503}


class Busy(Exception):  # noqa: N818  # no error: it says to come back
    """The server asks to come back after so many seconds."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"come back in {seconds:g} s")
        self.seconds = seconds


@dataclass
class Tally:
    """What came of it.

    Attributes:
        counts: of everything, by name.
        wrong: what was wrong, in words.
        names: of all answers; no two may have the same.
        texts: how often each answer of a script came.
        left: names of requests that were left, when (seconds since 1970), and in which way.
        seconds: of whole answers.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    names: set[str] = field(default_factory=set)
    texts: Counter[str] = field(default_factory=Counter)
    left: list[tuple[str, float, str]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def fault(self, kind: str, text: str) -> None:
        """Something that must not be."""
        self.counts[kind] += 1
        self.wrong.append(f"{kind}: {text}"[:600])


@dataclass
class Crowd:
    """All clients of a run.

    Attributes:
        port: of the server.
        known: the right answer by dialect and prompt; empty where a script has `texts`.
        texts: the answers that a script has.
        think: most seconds between two requests of a client.
        until: monotonic seconds at which no client begins anything new.
        models: names that clients ask for, each as often as the others; empty where there is one model.
    """

    port: int
    prompts: dict[str, list[str]]
    known: dict[tuple[str, str], str]
    texts: frozenset[str]
    think: float
    until: float
    seed: int = 1
    models: tuple[str, ...] = ()
    tally: Tally = field(default_factory=Tally)

    async def run(self, clients: int) -> None:
        """All of them, to the end of what they have begun."""
        lives = [asyncio.create_task(self._live(number)) for number in range(clients)]
        await asyncio.gather(*lives)

    async def _live(self, number: int) -> None:
        dice = random.Random(f"{self.seed} {number}")
        await asyncio.sleep(dice.random() * min(2.0, self.think))
        client = _Client(self, dice)
        kinds = KINDS | ({"by_hand": BY_HAND} if self.models else {})
        try:
            while time.monotonic() < self.until:
                kind = dice.choices(list(kinds), list(kinds.values()))[0]
                await self._one(client, kind)
                await asyncio.sleep(dice.random() * self.think)
        finally:
            await client.hang_up()

    async def _one(self, client: "_Client", kind: str) -> None:
        """One thing that a client does; asked to come back, it does, later each time."""
        self.tally.counts[f"begun: {kind}"] += 1
        for turn in range(1000):
            try:
                async with asyncio.timeout(LONGEST):
                    await client.do(kind)
            except Busy as busy:
                self.tally.counts["asked to come back"] += 1
                await client.rest(busy.seconds, turn)
                if time.monotonic() > self.until:
                    self.tally.counts["gave up while it was busy"] += 1
                    return
                continue
            except dialects.Wrong as error:
                self.tally.fault("wrong", f"{kind}: {error}")
            except (Lost, OSError, asyncio.IncompleteReadError) as error:
                self.tally.fault("lost", f"{kind}: {type(error).__name__} {error}")
            except TimeoutError:
                self.tally.fault("lost", f"{kind}: no end within {LONGEST:g} s")
            else:
                return
            await client.hang_up()
            return


class _Client:
    def __init__(self, crowd: Crowd, dice: random.Random) -> None:
        self._crowd, self._dice, self._tally = crowd, dice, crowd.tally
        self._wire: Wire | None = None  # kept for the next request
        self._model = ""  # that was asked last
        slow = dice.random() < 0.75
        self._pace = Pace(dice.choice((512, 1024, 2048)), dice.uniform(0.02, 0.2)) if slow else Pace()

    async def do(self, kind: str) -> None:
        """One of KINDS."""
        await getattr(self, f"_{kind}")()

    async def rest(self, seconds: float, turn: int) -> None:
        """As the official clients do: not before the time it was told, and twice as long each time."""
        await asyncio.sleep(min(8.0, seconds * 2 ** min(turn, 3)) * self._dice.uniform(1.0, 1.5))

    async def hang_up(self) -> None:
        """Close what is kept."""
        if self._wire is not None:
            await self._wire.close()
            self._wire = None

    def _body(self, dialect: str, prompt: str, *, stream: bool, long: bool = False) -> dict[str, object]:
        """A request; where there are several models, to one of them."""
        found = dialects.body(dialect, prompt, stream=stream, long=long)
        if self._crowd.models:
            found["model"] = self._model = self._dice.choice(self._crowd.models)
        return found

    # ---- an answer, whole

    async def _answer(self) -> None:
        dialect = self._dice.choice(list(dialects.PATHS))
        prompt = self._dice.choice(self._crowd.prompts[dialect])
        stream = self._dice.random() < 0.7
        long = self._dice.random() < 0.15
        began = time.monotonic()
        wire, head = await self._ask(dialect, self._body(dialect, prompt, stream=stream, long=long))
        raw = await wire.body(head)
        try:
            said = dialects.said(dialect, raw, stream=stream)
        except dialects.Refused:
            self._tally.counts["queue full, said in a stream"] += 1
            raise Busy(1.0) from None
        self._judge(dialect, prompt, said)
        self._tally.counts[f"whole: {dialect}{', streamed' if stream else ''}"] += 1
        self._tally.seconds.append(time.monotonic() - began)

    def _judge(self, dialect: str, prompt: str, said: dialects.Said) -> None:
        """Is it the right answer, and is it nobody else's?"""
        if said.name in self._tally.names:
            self._tally.fault("mixed", f"the name {said.name} came twice")
        self._tally.names.add(said.name)
        self._tally.counts["answers"] += 1
        if self._crowd.texts:
            self._tally.texts[said.text] += 1
            if self._model:
                self._tally.counts[f"answers of {self._model}"] += 1
            if not said.text.startswith(self._model):
                self._tally.fault("mixed", f"{self._model} was asked, and {said.text[:40]!r} is another's answer")
            if said.text not in self._crowd.texts:
                self._tally.fault("wrong", f"no answer of the script: {said.text!r}")
            elif self._tally.texts[said.text] > 1:
                self._tally.fault("mixed", f"one turn of the script came twice: {said.text[:80]!r}")
        elif said.text != (known := self._crowd.known[dialect, prompt]):
            self._tally.fault("wrong", f"{dialect} {prompt!r}: {said.text!r} instead of {known!r}")

    async def _ask(self, dialect: str, body: dict[str, object]) -> tuple[Wire, Head]:
        """Send a request and wait for its answer's head, on the connection that is kept if there is one."""
        data = request(dialects.PATHS[dialect], json.dumps(body).encode())
        if self._wire is not None and self._dice.random() < 0.3:
            await self.hang_up()
        kept = self._wire is not None
        if self._wire is None:
            self._wire = await Wire.open(self._crowd.port)
        wire = self._wire
        wire.pace = self._pace
        try:
            await wire.send(data)
            head = await wire.head()
        except (Lost, OSError):
            if not kept or wire.rest:
                raise
            self._tally.counts["a resting connection was closed"] += 1  # which a server may do at any time
            await self.hang_up()
            return await self._ask(dialect, body)
        if head.status == 200:
            if head.headers["x-request-id"] in self._tally.names:
                self._tally.fault("mixed", "a request's name came twice")
            self._tally.names.add(head.headers["x-request-id"])
            return wire, head
        told = await wire.body(head)
        if head.headers.get("connection") == "close":
            await self.hang_up()
        if head.status not in BUSY:
            raise dialects.Wrong(f"{head.status} {told[:300]!r}")
        if "retry-after" not in head.headers:
            raise dialects.Wrong(f"{head.status} without Retry-After")
        self._tally.counts[f"status {head.status} with Retry-After"] += 1
        raise Busy(float(head.headers["retry-after"]))

    # ---- where there are several models

    async def _by_hand(self) -> None:
        """Have one loaded or unloaded, whoever uses it."""
        action, name = self._dice.choice(("load", "unload")), self._dice.choice(self._crowd.models)
        body = json.dumps({"model": name, "wait": self._dice.random() < 0.3}).encode()
        wire = await self._fresh(request(f"/v1/models/{action}", body))
        head = await wire.head()
        told = await wire.body(head)
        await wire.close()
        if head.status not in {200, 409, 429, 503}:
            raise dialects.Wrong(f"{action} is answered with {head.status} {told[:300]!r}")
        self._tally.counts[f"by hand: {action}, {head.status}"] += 1

    # ---- those that leave

    async def _leave(self, wire: Wire, head: Head | None, how: str) -> None:
        self._wire = None
        if head is not None:
            self._tally.left.append((head.headers["x-request-id"], time.time(), how))
        self._tally.counts[f"left: {how}"] += 1
        await wire.close(reset=self._dice.random() < 0.5)

    async def _leave_stream(self) -> None:
        """In the middle of an answer."""
        dialect = self._dice.choice(list(dialects.PATHS))
        prompt = self._dice.choice(self._crowd.prompts[dialect])
        wire, head = await self._ask(dialect, self._body(dialect, prompt, stream=True))
        wire.pace = Pace()
        more = self._dice.randrange(4, 16)
        while more and (part := await wire.part(head)):
            more -= not part.startswith((b":", b"event: ping"))
        if more:
            self._tally.counts["over before it was left"] += 1
            return
        await self._leave(wire, head, "while it was answered")

    async def _leave_waiting(self) -> None:
        """As soon as there is a head: half a second after the request if it has to wait."""
        prompt = self._dice.choice(self._crowd.prompts["chat"])
        wire, head = await self._ask("chat", self._body("chat", prompt, stream=True))
        await self._leave(wire, head, "with the head")

    async def _leave_reading(self) -> None:
        """While a long prompt is read, which nobody has asked before."""
        nonce = f"{self._dice.getrandbits(60):x} "
        text = nonce + "one two three four five six seven eight nine ten " * 70
        body = self._body("chat", text, stream=True) | {"return_progress": True, "max_tokens": 8}
        wire, head = await self._ask("chat", body)
        wire.pace = Pace()
        while part := await wire.part(head):
            if b'"prompt_progress"' in part:
                await self._leave(wire, head, "while its prompt was read")
                return
        self._tally.counts["over before it was left"] += 1

    async def _leave_whole(self) -> None:
        """While an answer in one piece is computed or waits."""
        prompt = self._dice.choice(self._crowd.prompts["messages"])
        body = self._body("messages", prompt, stream=False)
        wire = await self._fresh(request(dialects.PATHS["messages"], json.dumps(body).encode()))
        await asyncio.sleep(self._dice.uniform(0.05, 3.0))
        await self._leave(wire, None, "before an answer in one piece")

    # ---- broken ones

    async def _fresh(self, data: bytes) -> Wire:
        """A connection of its own, with some bytes sent."""
        wire = await Wire.open(self._crowd.port)
        await wire.send(data)
        return wire

    async def _half_head(self) -> None:
        wire = await self._fresh(b"POST /v1/chat/completions HTTP/1.1\r\nHost: local")
        await asyncio.sleep(self._dice.uniform(0.1, 3.0))
        await wire.close(reset=self._dice.random() < 0.5)

    async def _half_body(self) -> None:
        head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"
        wire = await self._fresh(head + b'{"messages": [')
        await asyncio.sleep(self._dice.uniform(0.1, 3.0))
        await wire.close(reset=self._dice.random() < 0.5)

    async def _garbage(self) -> None:
        wire = await self._fresh(self._dice.randbytes(200) + b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):  # the server need not be polite
            head = await wire.head()
            if head.status != 400:
                raise dialects.Wrong(f"garbage is answered with {head.status}")
        await wire.close()

    async def _bad_json(self) -> None:
        wire = await self._fresh(request("/v1/responses", b'{"input": "half a te'))
        head = await wire.head()
        await wire.body(head)
        await wire.close()
        if head.status != 400:
            raise dialects.Wrong(f"half a JSON is answered with {head.status}")

    async def _reset(self) -> None:
        """A whole request, and gone."""
        prompt = self._dice.choice(self._crowd.prompts["chat"])
        body = json.dumps(self._body("chat", prompt, stream=self._dice.random() < 0.5)).encode()
        wire = await self._fresh(request(dialects.PATHS["chat"], body))
        await wire.close(reset=True)

    async def _deaf(self) -> None:
        """Asks for much, reads nothing, and goes."""
        prompt = self._dice.choice(self._crowd.prompts["chat"])
        body = json.dumps(self._body("chat", prompt, stream=True, long=True)).encode()
        wire = await self._fresh(request(dialects.PATHS["chat"], body))
        await asyncio.sleep(self._dice.uniform(2.0, 10.0))
        await wire.close(reset=True)


async def alone(port: int, dialect: str, prompt: str) -> str:
    """The answer to one request while there is no other."""
    wire = await Wire.open(port)
    try:
        body = json.dumps(dialects.body(dialect, prompt, stream=False)).encode()
        await wire.send(request(dialects.PATHS[dialect], body))
        head = await wire.head()
        raw = await wire.body(head)
        if head.status != 200:
            raise RuntimeError(f"{prompt!r} is answered with {head.status}: {raw[:500]!r}")
        return dialects.said(dialect, raw, stream=False).text
    finally:
        await wire.close()
