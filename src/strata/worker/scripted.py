"""An engine without a model: it answers from a script, in the same messages and with the same manners as a real one."""

import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from strata.engine import Sampling, Speed, Trace, WindowRecord
from strata.engine.budget import broken
from strata.errors import QueueFullError, RequestError
from strata.loading.files import ModelFile
from strata.text import Tokenizer
from strata.text.alphabet import CHARACTERS
from strata.worker import filename, values
from strata.worker import messages as m
from strata.worker.engine import Answer, OnLoad
from strata.worker.errors import Kind
from strata.worker.script import Script, Turn, read_script

CHUNK = 64
"""Tokens of a prompt that are read at once."""


@dataclass(eq=False, slots=True)
class _Conversation:
    """A request and how far its turn has been said."""

    request: m.Submit
    turn: Turn
    arrived: float
    due: float = 0.0  # time of the next step
    read: int = 0
    place: int = 0  # in the script
    said: int = 0  # tokens, a stop token among them
    thinking: bool = False
    tail: bytes = b""
    closing: list[int] = field(default_factory=list)  # tokens that end the thinking, still to be said
    started: float | None = None
    first: float | None = None  # time of the first token
    stop_ids: frozenset[int] = field(default_factory=frozenset)

    @property
    def reading(self) -> bool:
        return self.read < len(self.request.prompt)

    @property
    def cached(self) -> int:
        return min(self.turn.cached, len(self.request.prompt) - 1)


class Scripted:
    """The engine. Times are those of the script; what requests ask for is checked and, but for limits, not used.

    A thinking budget is kept as a real engine would: the block is closed, and the script goes on behind its own end of
    the block, or where it was if it has none.
    """

    def __init__(
        self, script: Script, tokenizer: Tokenizer, sampling: Sampling, setup: m.ScriptedEngine, served: int = 0
    ) -> None:
        """Begin with the turn of request number `served`."""
        self._script = script
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._setup = setup
        self._served = served
        self._invented: dict[bytes, int] = {}
        self._waiting: list[_Conversation] = []
        self._running: dict[str, _Conversation] = {}
        self._answers: list[Answer] = []
        self._counts: Counter[str] = Counter()
        self._read, self._said = Speed(), Speed()
        self._trace = Trace()
        self._ticked: float | None = None  # when the last tick was, if anything has been going on since
        self.ready = m.Ready(
            model="scripted",
            context=setup.context,
            vocabulary=tokenizer.size,
            limits=m.Limits(setup.conversations, setup.queue),
            fingerprint="scripted",
            stop_ids=tokenizer.eos_ids,
            engine="script",
        )

    @classmethod
    def load(cls, setup: m.ScriptedEngine, on_load: OnLoad, served: int = 0) -> Self:
        """Read the script and the vocabulary.

        Raises:
            StrataError: one of them cannot be used.
        """
        script = read_script(filename.read(setup.script))
        file = ModelFile.open(None if setup.vocabulary is None else filename.read(setup.vocabulary))
        began = time.monotonic()
        on_load(0, 100)
        while (share := (time.monotonic() - began) * 1000 / max(setup.loading_ms, 1e-9)) < 1:
            time.sleep(min(0.02, setup.loading_ms / 1000))
            on_load(int(share * 100), 100)
        engine = cls(script, file.tokenizer, Sampling(), setup, served)
        on_load(100, 100)
        return engine

    @property
    def idle(self) -> bool:
        """Whether there is nothing to say."""
        return not (self._running or self._waiting or self._answers)

    def wait(self) -> float:
        """Seconds until something is due."""
        if self._answers or (self._waiting and len(self._running) < self._setup.conversations):
            return 0.0
        times = [c.due for c in self._running.values()]
        times += [d for c in self._waiting if (d := _deadline(c)) is not None]
        return max(0.0, min(times) - time.monotonic())

    def submit(self, request: m.Submit) -> None:
        """Take a request; it gets the next turn."""
        values.check(request, self.ready)
        values.sampling(request.sampling, self._sampling)
        values.drafting(request.drafting)
        slots, bound = self._setup.conversations, self._setup.queue
        taken = len(self._running) + len(self._waiting)
        if taken >= slots + bound:
            raise QueueFullError(running=slots, waiting=taken - slots, bound=bound)
        stops = self._tokenizer.eos_ids if request.stop_ids is None else request.stop_ids
        turn = self._script.turn(self._served)
        self._served += 1
        thinking = request.budget is not None
        waiting = _Conversation(request, turn, time.monotonic(), thinking=thinking, stop_ids=frozenset(stops))
        self._waiting.append(waiting)
        self._waiting.sort(key=lambda c: -c.request.priority)  # stable: of equals the older

    def cancel(self, request: str) -> None:
        """End a request before its next step."""
        for conversation in [*self._running.values(), *self._waiting]:
            if conversation.request.id == request:
                self._end(conversation, "cancelled")

    def tick(self) -> Sequence[Answer]:
        """Say everything that is due."""
        now = time.monotonic()
        going = [c.reading for c in self._running.values()]
        before = self._counts["read"], self._counts["tokens"]
        for conversation in [*self._running.values(), *self._waiting]:
            deadline = _deadline(conversation)
            if deadline is not None and now >= deadline:
                self._end(conversation, "timeout")
        while self._waiting and len(self._running) < self._setup.conversations:
            self._begin(self._waiting.pop(0), now)
        faults = []
        for conversation in list(self._running.values()):
            while conversation.request.id in self._running and conversation.due <= now:
                if self._at_fault(conversation):
                    faults.append(conversation)
                    break
                self._step(conversation)
        self._note(now, going, *before)
        answers, self._answers = self._answers, []
        if not answers:  # what was said before it has been sent
            for conversation in faults:
                self._fault(conversation)
            answers, self._answers = self._answers, []
        return answers

    def stats(self) -> dict[str, Any]:
        """Counters, also by the names that a real engine has for them."""
        now, counts = time.monotonic(), self._counts
        reading = sum(c.reading for c in self._running.values())
        return {
            "running": len(self._running),
            "waiting": len(self._waiting),
            "tokens": counts["tokens"],
            "queued": len(self._waiting),
            "reading": reading,
            "decoding": len(self._running) - reading,
            "prompt_tokens": counts["read"] + counts["cached"],
            "read_tokens": counts["read"],
            "cached_tokens": counts["cached"],
            "generated_tokens": counts["tokens"] + counts["stops"],
            "finished": counts["finished"],
            "failed": counts["failed"],
            "reading_s": self._read.seconds,
            "read_speed": self._read.rate(now),
            "answering_s": self._said.seconds,
            "answered_tokens": self._said.tokens,
            "answer_speed": self._said.rate(now),
            **self._trace.totals.values(),
        }

    def holdings(self) -> m.Holdings:
        """It keeps nothing."""
        return m.Holdings()

    def trace(self, windows: int | None = None) -> bytes:
        """Each unit of work that said or read something, as long as it was waited for."""
        return self._trace.export(windows).encode()

    def resize(self, vram: int, nonce: int = 0) -> m.Resized:  # noqa: ARG002  # whatever is asked
        """There is nothing to resize.

        Raises:
            RequestError: always.
        """
        raise RequestError("a scripted engine has no model, and takes no GPU's memory")

    def close(self) -> None:
        """Nothing is kept."""

    def token(self, piece: bytes) -> int:
        """The id of a piece: a tag's or an entry's own, else one beyond the vocabulary that no other piece has."""
        names = ["".join(CHARACTERS[byte] for byte in piece)]
        with contextlib.suppress(UnicodeDecodeError):  # a part of a character is no tag
            names.insert(0, piece.decode())
        for name in names:
            found = self._tokenizer.id_of(name)
            if found is not None and self._tokenizer.token_bytes(found) == piece:
                return found
        return self._invented.setdefault(piece, self._tokenizer.size + len(self._invented))

    def _note(self, now: float, going: list[bool], read: int, said: int) -> None:
        """What came of the time since the last tick, during which these conversations were reading or answering."""
        seconds = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now if self._running else None
        read, said, reading = self._counts["read"] - read, self._counts["tokens"] - said, sum(going)
        began = time.perf_counter_ns() - int(seconds * 1e9)
        if reading:
            self._read.add(now, seconds, read)
            if read and seconds:
                self._trace.add(WindowRecord(began, read, reading, read_us=seconds * 1e6))
        if len(going) > reading:
            self._said.add(now, seconds, said)
            if said and seconds:
                answering = len(going) - reading
                self._trace.add(WindowRecord(began, answering, answering, run_us=seconds * 1e6, tokens=said))

    def _begin(self, conversation: _Conversation, now: float) -> None:
        conversation.started = conversation.due = now
        conversation.read = conversation.cached
        self._counts["cached"] += conversation.cached
        self._running[conversation.request.id] = conversation
        self._progress(conversation)
        self._wait_for_next(conversation)

    def _step(self, c: _Conversation) -> None:
        """Read the next part of the prompt, say the next piece, or end."""
        if c.reading:
            before, c.read = c.read, min(len(c.request.prompt), c.read + CHUNK)
            self._counts["read"] += c.read - before
            self._progress(c)
        elif c.closing or c.place < len(c.turn.pieces):
            c.first = c.first or time.monotonic()
            token, text = self._next(c)
            c.said += 1
            self._counts["tokens"] += 1
            if token in c.stop_ids:
                self._end(c, "stop", token)
                return
            self._answers.append(m.Tokens(c.request.id, (self._piece(c, token, text),), c.due))
            room = self._setup.context - len(c.request.prompt)
            if c.said >= min(room, c.request.max_tokens or room):
                self._end(c, "length")
                return
        else:
            stop = self._tokenizer.eos_ids[0] if c.turn.finish == "stop" else None
            c.said += stop is not None
            self._counts["stops"] += stop is not None
            self._end(c, c.turn.finish, stop)
            return
        self._wait_for_next(c)

    def _next(self, c: _Conversation) -> tuple[int, bytes]:
        """The next token and its bytes; when the thinking budget is used up, the script goes on behind its block."""
        budget = c.request.budget
        if c.thinking and budget is not None and c.said >= budget.most and not broken(c.tail):
            c.thinking, c.closing = False, list(budget.closing)
            later = range(c.place, len(c.turn.pieces))
            c.place = next((i + 1 for i in later if self.token(c.turn.pieces[i]) == budget.end), c.place)
        if c.closing:
            token = c.closing.pop(0)
            return token, self._tokenizer.token_bytes(token)
        text = c.turn.pieces[c.place]
        c.place += 1
        c.tail = (c.tail + text)[-4:]
        token = self.token(text)
        if budget is not None and token == budget.end:
            c.thinking = False
        return token, text

    def _wait_for_next(self, c: _Conversation) -> None:
        if c.reading:
            c.due += self._setup.reading_ms / 1000
        elif c.closing or c.place < len(c.turn.pieces):
            c.due += c.turn.delay_ms / 1000

    def _piece(self, c: _Conversation, token: int, text: bytes) -> m.Piece:
        """A token with probabilities that fall by a half each: 1/2 for the one said, 1/4 for the next, ..."""
        count = c.request.logprobs or 0
        others = [i for i in range(count + 1) if i != token][: max(0, count - 1)]
        top = tuple((i, _LOG_HALF * (place + 1)) for place, i in enumerate([token, *others][:count]))
        return m.Piece(token, text, _LOG_HALF, top)

    def _at_fault(self, c: _Conversation) -> bool:
        said_all = c.read == len(c.request.prompt) and c.place == len(c.turn.pieces) and not c.closing
        return c.turn.fault is not None and said_all

    def _fault(self, c: _Conversation) -> None:
        match c.turn.fault:
            case "raise":
                del self._running[c.request.id]
                self._counts["failed"] += 1
                self._answers.append(m.Failed(c.request.id, Kind.FAILED, "the script raises an error here"))
            case "die":
                os.kill(os.getpid(), signal.SIGKILL)
            case "memory":
                raise MemoryError("the script runs out of memory here")
            case _:
                while True:  # hang
                    time.sleep(3600)

    def _progress(self, c: _Conversation) -> None:
        self._answers.append(m.Progress(c.request.id, c.read, len(c.request.prompt), c.cached, c.due))

    def _end(self, c: _Conversation, reason: str, stop: int | None = None) -> None:
        now = time.monotonic()
        self._counts["finished"] += 1
        if c in self._waiting:
            self._waiting.remove(c)
        self._running.pop(c.request.id, None)
        started = now if c.started is None else c.started
        first = now if c.first is None else c.first
        usage = m.Usage(
            prompt=len(c.request.prompt),
            cached=c.cached if c.started is not None else 0,
            generated=c.said,
            windows=c.said,
            waiting_s=started - c.arrived,
            reading_s=first - started,
            decoding_s=now - first,
        )
        self._answers.append(m.Finished(c.request.id, reason, usage, stop))


_LOG_HALF = -0.6931471805599453


def _deadline(c: _Conversation) -> float | None:
    return None if c.request.timeout is None else c.arrived + c.request.timeout
