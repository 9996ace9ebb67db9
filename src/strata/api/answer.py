"""From tokens to the events of an answer."""

from collections.abc import Iterator

from strata.api.reply import Chosen, Event, Finished, Usage
from strata.engine import Finish, FinishReason, Token
from strata.text import Content, Delta, OutputParser, Stops, Tokenizer


class Answer:
    """Turns the tokens of one request into events.

    Stop strings are looked for in the answer's content as the parser gives it: not in thoughts, not in tool calls, and
    not in white space that the parser leaves out. A tool call between two parts of content separates them.

    Args:
        tokenizer: gives the tokens their text.
        parser: takes a turn apart; None leaves the text as it is.
        stops: texts that end the answer.
        prompt_tokens: for the usage.
        report: whether every token comes as an event as well.
    """

    def __init__(
        self, tokenizer: Tokenizer, parser: OutputParser | None, stops: Stops, prompt_tokens: int, *, report: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._text = tokenizer.detokeniser()
        self._parser = parser
        self._stops = stops
        self._prompt_tokens = prompt_tokens
        self._report = report

    def events(self, tokens: Iterator[Token | Finish]) -> Iterator[Event]:
        """Events as tokens arrive. After a stop string no further token is asked for."""
        for before, token in enumerate(tokens):
            if isinstance(token, Finish):
                yield from self._shown(self._last(token))
                yield from self._finish(token.reason, token.tokens)
                return
            if self._report:
                yield Chosen(token.id, self._tokenizer.token_bytes(token.id), token.logprob, token.top)
            yield from self._shown(self._parse(self._text.push(token.id)))
            if self._stops.hit is not None:
                yield from self._finish(FinishReason.STOP, before + 1)
                return

    def _parse(self, text: str) -> list[Delta]:
        if self._parser is not None:
            return self._parser.push(text)
        return [Content(text)] if text else []

    def _last(self, finish: Finish) -> list[Delta]:
        deltas = self._parse(self._text.finish())
        return deltas if self._parser is None else [*deltas, *self._parser.finish(cut=finish.reason != "stop")]

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

    def _finish(self, reason: FinishReason, count: int) -> Iterator[Event]:
        yield from _content(self._stops.flush())
        hit = self._stops.hit
        yield Finished(reason if hit is None else FinishReason.STOP, Usage(self._prompt_tokens, count), hit)


def _content(text: str) -> list[Content]:
    return [Content(text)] if text else []
