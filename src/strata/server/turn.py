"""One answer while it comes: from the engine's reports to events, with what the request demands of it."""

import time
from collections.abc import Iterator

from strata.api.answer import Answer
from strata.api.reply import Event, Finished
from strata.server.ask import Ask
from strata.server.errors import ApiError
from strata.server.rendering import Turn
from strata.text import Content, OutputParser, Stops, Tokenizer, ToolCallEnd, ToolCallStart
from strata.worker import Event as Report
from strata.worker import Finished as Ended
from strata.worker import Progress, Tokens, Usage


class Answering:
    """One answer under way.

    Attributes:
        turn: what is computed.
        index: its place among the answers of the request.
        progress: the newest of the engine's reports on the prompt.
        usage: what it took, as far as is known.
        reason: why it ended; None before.
        stop: the stop string that ended it.
        calls: tool calls that are complete.
        unfinished: "reasoning" if it ended inside its think block, "tool_call" if inside a call; else empty.
        first: when the first token came, in monotonic seconds.
        speed: tokens a second since then, by the engine's clock; None before the second.
    """

    def __init__(self, turn: Turn, index: int, ask: Ask, tokenizer: Tokenizer) -> None:
        self.turn = turn
        self.index = index
        self.progress = Progress("", 0, len(turn.submit.prompt))
        self.reason: str | None = None
        self.stop: str | None = None
        self.calls = 0
        self.unfinished = ""
        self.began = time.monotonic()
        self.first: float | None = None
        self.last: float | None = None
        self.speed: float | None = None
        self._begun: tuple[float, int] | None = None  # on the engine's clock, and how many tokens there were then
        self._ask = ask
        self._parser = OutputParser(ask.tools.declared or None, thinking=turn.inside) if turn.parsed else None
        self._answer = Answer(tokenizer, self._parser, Stops(ask.stop), report=ask.logprobs is not None)
        self._ended: Usage | None = None

    @property
    def over(self) -> bool:
        """Whether the last event has been given."""
        return self._answer.over

    @property
    def reasoned(self) -> int:
        """Tokens of the thinking."""
        return self._answer.reasoned

    @property
    def usage(self) -> Usage:
        """What it took so far."""
        if self._ended is not None:
            return self._ended
        now, first = self.last or time.monotonic(), self.first
        return Usage(
            prompt=len(self.turn.submit.prompt),
            cached=self.progress.cached,
            generated=self._answer.said,  # of a report in which it ended, no more than up to its end
            reading_s=(first or now) - self.began,
            decoding_s=0.0 if first is None else now - first,
        )

    def take(self, report: Report) -> list[Event]:
        """The events of one report.

        Raises:
            ApiError: the answer is none that was asked for.
        """
        match report:
            case Progress():
                self.progress = report
            case Tokens():
                self.last = time.monotonic()
                self.first = self.first or self.last
            case Ended(usage=usage):
                self._ended = usage
        events = list(self._watched(self._answer.take(report)))
        if isinstance(report, Tokens):
            when, said = self._begun = self._begun or (report.when, self._answer.said)
            if report.when > when:
                self.speed = (self._answer.said - said) / (report.when - when)
        return events

    def _watched(self, events: Iterator[Event]) -> Iterator[Event]:
        for event in events:
            match event:
                case Finished(reason=reason, stop=stop):
                    self._finish(str(reason), stop)
                case Content() if self._ask.tools.must and event.text.strip():
                    raise self._unasked("the model answered with text, although tool_choice demands a call")
                case ToolCallStart(name=name):
                    only = self._ask.tools.only
                    if only is not None and name != only:
                        raise self._unasked(f"the model called {name!r}, although tool_choice names {only!r}")
                case ToolCallEnd():
                    self.calls += 1
            yield event
            if isinstance(event, ToolCallEnd) and not self._ask.tools.parallel:
                self._finish("stop", None)
                yield self._answer.leave()
                return

    def _finish(self, reason: str, stop: str | None) -> None:
        self.reason, self.stop = reason, stop
        if self._parser is not None and reason == "stop" and self._parser.unfinished_call:
            self.unfinished = "tool_call"
        elif self._parser is not None and self._parser.reasoning and not self.calls:
            self.unfinished = "reasoning"
        if self._ask.tools.must and reason == "stop" and not self.calls:
            raise self._unasked("the model ended its turn without the call that tool_choice demands")

    def _unasked(self, message: str) -> ApiError:
        return ApiError(502, message, code="tool_choice_not_met")
