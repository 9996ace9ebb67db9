"""The answer of /v1/chat/completions."""

import secrets
import time
from typing import Any

from strata.api.reply import Chosen, Event, Finished
from strata.server import sse
from strata.server.dialects.openai import logprobs
from strata.server.dialects.openai.chat import Wishes
from strata.server.dialects.openai.custom import PlainInput, plain_input
from strata.server.dialects.openai.usage import error_body, finish_reason, timings, usage
from strata.server.errors import ApiError
from strata.server.run import Run
from strata.server.served import Served
from strata.server.transcript import Call, Transcript
from strata.server.turn import Answering
from strata.text import Content, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart


class ChatWriter:
    """Writes answers in OpenAI's chat form."""

    def __init__(self, served: Served, custom: frozenset[str], wishes: Wishes, *, shown: bool) -> None:
        """Begin.

        Args:
            served: the model.
            custom: tools whose input is a plain text.
            wishes: of the client.
            shown: whether thoughts are given.
        """
        self._tokenizer = served.tokenizer
        known = served.known
        self._envelope = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": served.name,
            "system_fingerprint": f"fp_{known.fingerprint[:12]}" if known else None,
        }
        self._custom, self._wishes, self._shown = custom, wishes, shown
        self._gathered: dict[int, Transcript] = {}
        self._chosen: dict[int, list[Chosen]] = {}
        self._inputs: dict[tuple[int, int], PlainInput] = {}  # of custom tools

    def note(self, answer: Answering, events: list[Event]) -> None:
        """Gather."""
        self._gathered.setdefault(answer.index, Transcript()).note(events)

    def whole(self, run: Run) -> dict[str, Any]:
        """All choices."""
        choices = [self._choice(answer, self._gathered.get(answer.index, Transcript())) for answer in run.answers]
        more = {"timings": timings(run.answers[0])} if len(run.answers) == 1 else {}
        return {**self._envelope, "object": "chat.completion", "choices": choices, "usage": usage(run.answers), **more}

    def begin(self, run: Run) -> bytes:
        """The first chunk of each choice has the role."""
        return b"".join(self._chunk(answer, {"role": "assistant", "content": ""}) for answer in run.answers)

    def more(self, answer: Answering, events: list[Event]) -> bytes:
        """Deltas."""
        if not events:
            return self._progress(answer)
        parts: list[bytes] = []
        for event in events:
            match event:
                case Chosen():
                    self._chosen.setdefault(answer.index, []).append(event)
                case Reasoning() if self._shown:
                    parts.append(self._chunk(answer, {"reasoning_content": event.text}))
                case Content():
                    parts.append(self._chunk(answer, {"content": event.text}))
                case ToolCallStart() | ToolCallArguments() | ToolCallEnd():
                    parts += [self._chunk(answer, {"tool_calls": [call]}) for call in self._call(answer, event)]
                case Finished():
                    parts.append(self._last(answer))
        return b"".join(parts)

    def sign(self, run: Run) -> bytes:
        """A comment."""
        progress = run.answers[0].progress
        return sse.comment(f"read {progress.read} of {progress.total}" if progress.read < progress.total else "working")

    def end(self, run: Run) -> bytes:
        """Usage, if it is wanted, and the end."""
        if not self._wishes.usage:
            return sse.DONE
        return sse.data({**self._chunked(), "choices": [], "usage": usage(run.answers)}) + sse.DONE

    def failed(self, run: Run, error: ApiError) -> bytes:  # noqa: ARG002
        """The error, and the end."""
        return sse.data(error_body(error)) + sse.DONE

    def _chunked(self) -> dict[str, Any]:
        chunk = {**self._envelope, "object": "chat.completion.chunk"}
        return chunk | {"usage": None} if self._wishes.usage else chunk

    def _chunk(self, answer: Answering, delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
        chosen = self._chosen.pop(answer.index, [])
        probable = {"content": logprobs.of_chat(chosen, self._tokenizer)} if chosen else None
        choice = {"index": answer.index, "delta": delta, "logprobs": probable, "finish_reason": reason}
        return sse.data({**self._chunked(), "choices": [{**choice, **_flag(answer, reason)}], **more})

    def _last(self, answer: Answering) -> bytes:
        return self._chunk(answer, {}, finish_reason(answer), timings=timings(answer))

    def _progress(self, answer: Answering) -> bytes:
        progress = answer.progress
        if not self._wishes.progress:
            return b""
        spent = int((time.monotonic() - answer.began) * 1000)
        told = {"total": progress.total, "cache": progress.cached, "processed": progress.read, "time_ms": spent}
        return self._chunk(answer, {}, prompt_progress=told)

    def _call(self, answer: Answering, event: ToolCallStart | ToolCallArguments | ToolCallEnd) -> list[dict[str, Any]]:
        place = (answer.index, event.index)
        if isinstance(event, ToolCallStart):
            kind = "custom" if event.name in self._custom else "function"
            if kind == "custom":
                self._inputs[place] = PlainInput()
            body = {"name": event.name, "input" if kind == "custom" else "arguments": ""}
            return [{"index": event.index, "id": call_id(), "type": kind, kind: body}]
        waiting = self._inputs.get(place)
        if isinstance(event, ToolCallArguments):
            if waiting is None:
                return [{"index": event.index, "function": {"arguments": event.json_fragment}}]
            text = waiting.push(event.json_fragment)
        else:
            text = "" if waiting is None else waiting.end()
        return [{"index": event.index, "custom": {"input": text}}] if text else []

    def _choice(self, answer: Answering, found: Transcript) -> dict[str, Any]:
        content = "".join(found.content)
        message: dict[str, Any] = {"role": "assistant", "content": content if content or not found.calls else None}
        if found.reasoning and self._shown:
            message["reasoning_content"] = "".join(found.reasoning)
        if found.calls:
            message["tool_calls"] = [self._written(call) for call in found.calls]
        asked = answer.turn.submit.logprobs is not None
        probable = {"content": logprobs.of_chat(found.chosen, self._tokenizer)} if asked else None
        reason = finish_reason(answer)
        choice = {"index": answer.index, "message": message, "logprobs": probable, "finish_reason": reason}
        return {**choice, **_flag(answer, reason)}

    def _written(self, call: Call) -> dict[str, Any]:
        if call.name in self._custom:
            body = {"name": call.name, "input": plain_input(call.arguments)}
            return {"id": call_id(), "type": "custom", "custom": body}
        return {"id": call_id(), "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def call_id() -> str:
    """A name for a call."""
    return f"call_{secrets.token_hex(12)}"


def _flag(answer: Answering, reason: str | None) -> dict[str, Any]:
    """Says that an answer ended inside its thoughts or a call, so that it is not taken for a whole one."""
    return {"unfinished": answer.unfinished} if reason is not None and answer.unfinished else {}
