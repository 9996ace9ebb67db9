"""The answer of /v1/messages."""

import json
import secrets
from typing import Any

from strata.api.reply import Event, Finished
from strata.server import sse
from strata.server.ask import Ask
from strata.server.dialects.anthropic.errors import error_body
from strata.server.errors import ApiError
from strata.server.run import Run
from strata.server.sealed import mark, seal
from strata.server.served import Served
from strata.server.turn import Answering
from strata.text import Content, Reasoning, ToolCallArguments, ToolCallEnd, ToolCallStart

_PING = sse.event("ping", {"type": "ping"})


class MessageWriter:
    """Writes an answer as blocks: thinking, text, calls, in the order in which they come, numbered without a gap."""

    def __init__(self, served: Served, ask: Ask) -> None:
        """Begin."""
        self._shown = ask.thinking.shown
        self._message: dict[str, Any] = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": served.name,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
        }
        self._blocks: list[dict[str, Any]] = []
        self._open = False
        self._text: list[str] = []  # of the open block
        self._whole_call = False

    def note(self, answer: Answering, events: list[Event]) -> None:
        """Gather; a stream and an answer in one piece are the same blocks."""
        self.more(answer, events)

    def whole(self, run: Run) -> dict[str, Any]:
        """The message."""
        (answer,) = run.answers
        blocks = [block for block in self._blocks if not isinstance(block.get("input"), str)]
        return {**self._message, "content": blocks, **_ending(answer), "usage": _usage(answer)}

    def begin(self, run: Run) -> bytes:
        """The message without content."""
        (answer,) = run.answers
        usage = {**_usage(answer), "output_tokens": 0}
        return (
            sse.event("message_start", {"type": "message_start", "message": {**self._message, "usage": usage}}) + _PING
        )

    def more(self, answer: Answering, events: list[Event]) -> bytes:
        """Blocks and their deltas."""
        parts: list[bytes] = []
        for event in events:
            match event:
                case Reasoning():
                    parts += self._in_block("thinking", event.text)
                case Content():
                    parts += self._in_block("text", event.text)
                case ToolCallStart():
                    block = {
                        "type": "tool_use",
                        "id": f"toolu_{secrets.token_hex(12)}",
                        "name": event.name,
                        "input": {},
                    }
                    parts += [*self._close(), self._start(block)]
                case ToolCallArguments():
                    self._text.append(event.json_fragment)
                    parts.append(self._delta({"type": "input_json_delta", "partial_json": event.json_fragment}))
                case ToolCallEnd():
                    self._whole_call = True
                    parts += self._close()
                case Finished():
                    parts += self._close()
                    parts.append(_delta_of_message(answer))
        return b"".join(parts)

    def sign(self, run: Run) -> bytes:  # noqa: ARG002
        """A ping."""
        return _PING

    def end(self, run: Run) -> bytes:  # noqa: ARG002
        """The last event."""
        return sse.event("message_stop", {"type": "message_stop"})

    def failed(self, run: Run, error: ApiError) -> bytes:
        """The error in place of an end."""
        return sse.event("error", error_body(error, run.name))

    def _in_block(self, kind: str, text: str) -> list[bytes]:
        parts: list[bytes] = []
        if not self._open or self._blocks[-1]["type"] != kind:
            empty = {"thinking": "", "signature": ""} if kind == "thinking" else {"text": "", "citations": None}
            parts += [*self._close(), self._start({"type": kind, **empty})]
        self._text.append(text)
        if kind == "text":
            parts.append(self._delta({"type": "text_delta", "text": text}))
        elif self._shown:
            parts.append(self._delta({"type": "thinking_delta", "thinking": text}))
        return parts

    def _start(self, block: dict[str, Any]) -> bytes:
        self._blocks.append(dict(block))
        self._open, self._whole_call = True, False
        index = len(self._blocks) - 1
        told = {"type": "content_block_start", "index": index, "content_block": block}
        return sse.event("content_block_start", told)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        told = {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}
        return sse.event("content_block_delta", told)

    def _close(self) -> list[bytes]:
        """End the open block, complete in every way."""
        if not self._open:
            return []
        block, text, parts = self._blocks[-1], "".join(self._text), []
        if block["type"] == "thinking":
            block["thinking"] = text if self._shown else ""
            block["signature"] = mark(text) if self._shown else seal(text)
            parts.append(self._delta({"type": "signature_delta", "signature": block["signature"]}))
        elif block["type"] == "text":
            block["text"] = text
        else:  # a call that was cut off keeps its text, which is no object
            block["input"] = json.loads(text or "{}") if self._whole_call else text
        index = len(self._blocks) - 1
        parts.append(sse.event("content_block_stop", {"type": "content_block_stop", "index": index}))
        self._open = False
        self._text.clear()
        return parts


def _delta_of_message(answer: Answering) -> bytes:
    told = {"type": "message_delta", "delta": _ending(answer), "usage": _usage(answer)}
    return sse.event("message_delta", told)


def _ending(answer: Answering) -> dict[str, Any]:
    if answer.reason != "stop":
        reason = "max_tokens"
    elif answer.stop is not None:
        reason = "stop_sequence"
    else:
        reason = "tool_use" if answer.calls else "end_turn"
    told: dict[str, Any] = {"stop_reason": reason, "stop_sequence": answer.stop}
    words = {"reasoning": "thinking", "tool_call": "tool_use"}
    return told | ({"unfinished": words[answer.unfinished]} if answer.unfinished else {})


def _usage(answer: Answering) -> dict[str, int]:
    """Tokens in Anthropic's meaning: input is what had to be read, and what was known stands beside it."""
    took = answer.usage
    return {
        "input_tokens": took.prompt - took.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": took.cached,
        "output_tokens": took.generated,
    }
