"""The answer of /v1/responses."""

import secrets
import time
from typing import Any

from strata.api.reply import Event
from strata.server import sse
from strata.server.ask import Ask
from strata.server.dialects.responses.output import Output
from strata.server.dialects.responses.request import Echo
from strata.server.dialects.responses.store import Store
from strata.server.errors import ApiError
from strata.server.run import Run
from strata.server.served import Served
from strata.server.turn import Answering


class ResponseWriter:
    """Writes an answer as items; a stream and an answer in one piece are the same items."""

    def __init__(self, served: Served, ask: Ask, echo: Echo, store: Store) -> None:
        """Begin; the response is put into `store` if it is to be kept."""
        self._echo, self._store = echo, store
        self._response = {
            "id": f"resp_{secrets.token_hex(24)}",
            "object": "response",
            "created_at": int(time.time()),
            "model": served.name,
            "background": False,
            "error": None,
            "incomplete_details": None,
            **echo.fields,
        }
        self._output = Output(served.tokenizer, ask, echo)
        self._number = 0

    def note(self, answer: Answering, events: list[Event]) -> None:
        """Gather."""
        self._output.take(answer, events)

    def whole(self, run: Run) -> dict[str, Any]:
        """The response."""
        return self._ended(run)

    def begin(self, run: Run) -> bytes:  # noqa: ARG002
        """The response without output."""
        started = {**self._response, "status": "in_progress", "output": [], "usage": None}
        return b"".join(
            self._event({"type": kind, "response": started}) for kind in ("response.created", "response.in_progress")
        )

    def more(self, answer: Answering, events: list[Event]) -> bytes:
        """Items and their deltas."""
        number = self._number
        try:
            return b"".join(map(self._event, self._output.take(answer, events)))
        except Exception:
            self._number = number  # nothing of it is sent
            raise

    def sign(self, run: Run) -> bytes:
        """A comment."""
        progress = run.answers[0].progress
        return sse.comment(f"read {progress.read} of {progress.total}" if progress.read < progress.total else "working")

    def end(self, run: Run) -> bytes:
        """The whole response."""
        whole = self._ended(run)
        return self._event({"type": f"response.{whole['status']}", "response": whole})

    def failed(self, run: Run, error: ApiError) -> bytes:
        """The response as it failed."""
        told = {"code": error.code or error.type, "message": str(error)}
        output = self._output.so_far()
        response = {**self._response, "status": "failed", "error": told, "output": output}
        response["usage"] = _usage(run) if run.answers else None  # it may fail before its model is there
        try:
            return self._event({"type": "response.failed", "response": response})
        except Exception:  # noqa: BLE001  # what cannot be written may be why it failed
            return self._event({"type": "response.failed", "response": {**response, "output": []}})

    def _ended(self, run: Run) -> dict[str, Any]:
        (answer,) = run.answers
        whole = {**self._response, "status": "completed", "output": self._output.items, "usage": _usage(run)}
        if answer.reason != "stop":
            whole |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        elif answer.unfinished:
            whole["unfinished"] = answer.unfinished
        if self._echo.stored:
            self._store.put(self._echo.client, (*self._echo.items, *self._output.items), whole)
        return whole

    def _event(self, value: dict[str, Any]) -> bytes:
        written = sse.event(value["type"], {**value, "sequence_number": self._number})
        self._number += 1
        return written


def _usage(run: Run) -> dict[str, Any]:
    (answer,) = run.answers
    took = answer.usage
    return {
        "input_tokens": took.prompt,
        "input_tokens_details": {"cached_tokens": took.cached},
        "output_tokens": took.generated,
        "output_tokens_details": {"reasoning_tokens": answer.reasoned},
        "total_tokens": took.prompt + took.generated,
    }
