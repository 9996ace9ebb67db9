"""The answer of /v1/completions."""

import secrets
import time
from typing import Any

from strata.api.reply import Chosen, Event, Finished
from strata.server import sse
from strata.server.dialects.openai import logprobs
from strata.server.dialects.openai.chat import Wishes
from strata.server.dialects.openai.usage import error_body, timings, usage
from strata.server.errors import ApiError
from strata.server.run import Run
from strata.server.served import Served
from strata.server.transcript import Transcript
from strata.server.turn import Answering
from strata.text import Content


class CompletionWriter:
    """Writes continuations of texts."""

    def __init__(self, served: Served, wishes: Wishes, *, echo: bool, prompts: int) -> None:
        """Begin.

        Args:
            served: the model.
            wishes: of the client.
            echo: whether the prompt stands before the answer.
            prompts: how many there are.
        """
        self._tokenizer = served.tokenizer
        self._envelope = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": served.name,
        }
        self._wishes, self._echo, self._prompts = wishes, echo, prompts
        self._gathered: dict[int, Transcript] = {}
        self._chosen: dict[int, list[Chosen]] = {}
        self._probable: dict[int, logprobs.Completion] = {}

    def note(self, answer: Answering, events: list[Event]) -> None:
        """Gather."""
        self._gathered.setdefault(answer.index, Transcript()).note(events)

    def whole(self, run: Run) -> dict[str, Any]:
        """All choices."""
        more = {"timings": timings(run.answers[0])} if len(run.answers) == 1 else {}
        choices = [self._whole(answer) for answer in run.answers]
        return {**self._envelope, "choices": choices, "usage": usage(run.answers, self._prompts), **more}

    def begin(self, run: Run) -> bytes:
        """The prompts, if they are to be repeated."""
        return b"".join(self._chunk(answer, self._repeated(answer)) for answer in run.answers) if self._echo else b""

    def more(self, answer: Answering, events: list[Event]) -> bytes:
        """Pieces of text."""
        parts: list[bytes] = []
        for event in events:
            match event:
                case Chosen():
                    self._chosen.setdefault(answer.index, []).append(event)
                case Content():
                    parts.append(self._chunk(answer, event.text))
                case Finished():
                    parts.append(self._chunk(answer, "", answer.reason, timings=timings(answer)))
        return b"".join(parts)

    def sign(self, run: Run) -> bytes:
        """A comment."""
        progress = run.answers[0].progress
        return sse.comment(f"read {progress.read} of {progress.total}" if progress.read < progress.total else "working")

    def end(self, run: Run) -> bytes:
        """Usage, if it is wanted, and the end."""
        if not self._wishes.usage:
            return sse.DONE
        return sse.data({**self._envelope, "choices": [], "usage": usage(run.answers, self._prompts)}) + sse.DONE

    def failed(self, run: Run, error: ApiError) -> bytes:  # noqa: ARG002
        """The error, and the end."""
        return sse.data(error_body(error)) + sse.DONE

    def _repeated(self, answer: Answering) -> str:
        return self._tokenizer.decode(answer.turn.submit.prompt, special=True)

    def _chunk(self, answer: Answering, text: str, reason: str | None = None, **more: Any) -> bytes:
        chosen = self._chosen.pop(answer.index, [])
        probable = self._lists(answer, chosen) if chosen else None
        choice = {"index": answer.index, "text": text, "logprobs": probable, "finish_reason": reason}
        return sse.data({**self._envelope, "choices": [choice], **more})

    def _lists(self, answer: Answering, chosen: list[Chosen]) -> dict[str, Any]:
        return self._probable.setdefault(answer.index, logprobs.Completion(self._tokenizer)).of(chosen)

    def _whole(self, answer: Answering) -> dict[str, Any]:
        found = self._gathered.get(answer.index, Transcript())
        text = (self._repeated(answer) if self._echo else "") + "".join(found.content)
        asked = answer.turn.submit.logprobs is not None
        probable = self._lists(answer, found.chosen) if asked else None
        return {"index": answer.index, "text": text, "logprobs": probable, "finish_reason": answer.reason}
