"""From tokens to the events of an answer."""

import contextlib
from collections.abc import Iterator, Sequence

from strata import worker
from strata.api.reply import Chosen, Event, Finished, Usage
from strata.engine import FinishReason
from strata.text import Content, Delta, OutputParser, Stops, Tokenizer
from strata.worker import Event as Report
from strata.worker import Piece, Progress, Tokens


class Answer:
    """Turns the tokens of one request into events.

    Stop strings are looked for in the answer's content as the parser gives it: not in thoughts, not in tool calls, and
    not in white space that the parser leaves out. A tool call between two parts of content separates them.

    Args:
        tokenizer: gives the tokens their text.
        parser: takes a turn apart; None leaves the text as it is.
        stops: texts that end the answer.
        report: whether every token comes as an event as well.

    Attributes:
        over: whether the last event has been given.
        said: tokens so far, up to the one that ended it.
        reasoned: tokens of the thinking so far, the tag that ends it among them.
    """

    def __init__(self, tokenizer: Tokenizer, parser: OutputParser | None, stops: Stops, *, report: bool) -> None:
        self._hidden = tokenizer.control_ids
        self._text = tokenizer.detokeniser()
        self._parser = parser
        self._stops = stops
        self._prompt_tokens = self._cached_tokens = self.said = 0
        self._report = report
        self.over = False
        self.reasoned = 0

    def events(self, reports: "Iterator[Report]") -> Iterator[Event]:
        """Events as tokens arrive. After a stop string no further token is asked for."""
        with contextlib.closing(reports):  # type: ignore[type-var]  # a generator
            for report in reports:
                yield from self.take(report)
                if self.over:
                    return

    def take(self, report: "Report") -> Iterator[Event]:
        """The events of one report of the engine; the last one of an answer is `Finished`."""
        match report:
            case Progress():
                self._prompt_tokens, self._cached_tokens = report.total, report.cached
            case Tokens():
                yield from self._tokens(report.tokens)
                if self._stops.hit is not None:
                    yield from self._finish(FinishReason.STOP)
            case worker.Finished(reason=reason, usage=usage):
                self._prompt_tokens, self._cached_tokens = usage.prompt, usage.cached
                self.said = usage.generated
                yield from self._shown(self._last(reason))
                yield from self._finish(FinishReason(reason))

    def leave(self) -> Finished:
        """The end of an answer of which no more is wanted."""
        self.over = True
        return Finished(FinishReason.STOP, Usage(self._prompt_tokens, self.said, self._cached_tokens))

    def _tokens(self, pieces: Sequence[Piece]) -> Iterator[Event]:
        """Events of some tokens, up to a stop string."""
        for piece in pieces:
            self.said += 1
            if self._parser is not None and self._parser.reasoning:
                self.reasoned += 1
            if self._report:
                yield Chosen(piece.id, piece.bytes, piece.logprob, piece.top)
            yield from self._shown(self._parse(self._text.push_bytes(b"" if piece.id in self._hidden else piece.bytes)))
            if self._stops.hit is not None:
                return

    def _parse(self, text: str) -> list[Delta]:
        if self._parser is not None:
            return self._parser.push(text)
        return [Content(text)] if text else []

    def _last(self, reason: str) -> list[Delta]:
        deltas = self._parse(self._text.finish())
        return deltas if self._parser is None else [*deltas, *self._parser.finish(cut=reason != "stop")]

    def _shown(self, deltas: list[Delta]) -> Iterator[Event]:
        """What the stop strings let through, up to the first of them."""
        for delta in deltas:
            if isinstance(delta, Content):
                yield from _content(self._stops.push(delta.text))
                if self._stops.hit is not None:
                    return
            else:
                yield from _content(self._stops.flush())
                yield delta

    def _finish(self, reason: FinishReason) -> Iterator[Event]:
        self.over = True
        yield from _content(self._stops.flush())
        hit = self._stops.hit
        usage = Usage(self._prompt_tokens, self.said, self._cached_tokens)
        yield Finished(reason if hit is None else FinishReason.STOP, usage, hit)


def _content(text: str) -> list[Content]:
    return [Content(text)] if text else []
