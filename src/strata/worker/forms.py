"""Forms of answers: compiled beside the engine's work, kept, and handed out as often as they are asked for.

A grammar of thousands of properties takes seconds to compile. The library that does it lets other threads run, so the
engine's loop goes on meanwhile, and the request waits here until its form is there.
"""

import time
from collections import OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.errors import RequestError
from strata.worker.messages import Grammar, Submit

if TYPE_CHECKING:
    from collections.abc import Callable

    from strata.engine.constraint import Constraint

SECONDS = 60.0
"""Most time that a grammar may take until it is compiled, waiting for others before it included."""

THREADS = 2
"""Grammars that are compiled at a time."""

KEPT, KEPT_BYTES = 64, 8 << 20
"""Compiled grammars that are kept, and bytes of their sources: those that were used last."""


@dataclass(slots=True)
class _Waiting:
    request: Submit
    began: float
    made: "Future[Constraint]"


@dataclass(frozen=True, slots=True)
class Formed:
    """A request whose form is there, or never will be.

    Attributes:
        request: the request.
        began: when it was submitted, monotonic seconds.
        form: its own constraint; an error if there is none.
    """

    request: Submit
    began: float
    form: "Constraint | BaseException"


class Forms:
    """All forms of one model. For one thread, but for the compiling itself."""

    def __init__(self, make: "Callable[[Grammar], Constraint]") -> None:
        """Begin with none.

        Args:
            make: compiles; called from other threads. Raises RequestError for what is wrong with a grammar.
        """
        self._make = make
        self._pool: ThreadPoolExecutor | None = None
        self._kept: OrderedDict[Grammar, Constraint] = OrderedDict()
        self._waiting: dict[str, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def known(self, grammar: Grammar) -> "Constraint | None":
        """A constraint at the beginning of a grammar that is compiled already; None if it is not."""
        if grammar not in self._kept:
            return None
        self._kept.move_to_end(grammar)
        return self._kept[grammar].fork()

    def compiled(self, grammar: Grammar) -> "Constraint":
        """A constraint at the beginning of a grammar, compiled here and now if need be.

        Raises:
            RequestError: it cannot be used.
        """
        found = self.known(grammar)
        if found is None:
            found = self._keep(grammar, self._make(grammar))
        return found

    def begin(self, request: Submit) -> None:
        """Compile the form of a request beside; `done` gives it back."""
        assert request.grammar is not None
        if self._pool is None:
            self._pool = ThreadPoolExecutor(THREADS, "strata-grammar")
        # Two requests with the same grammar compile it once.
        same = next((one.made for one in self._waiting.values() if one.request.grammar == request.grammar), None)
        made = same or self._pool.submit(self._make, request.grammar)
        self._waiting[request.id] = _Waiting(request, time.monotonic(), made)

    def cancel(self, request: str) -> Formed | None:
        """Forget a request; returns it if it waited."""
        waiting = self._waiting.pop(request, None)
        if waiting is None:
            return None
        if not any(one.made is waiting.made for one in self._waiting.values()):
            waiting.made.cancel()
        return Formed(waiting.request, waiting.began, RequestError("cancelled"))

    def late(self) -> list[Formed]:
        """The requests whose own time is over, which are forgotten."""
        now = time.monotonic()
        over = [
            name
            for name, waiting in self._waiting.items()
            if waiting.request.timeout is not None and now - waiting.began >= waiting.request.timeout
        ]
        return [formed for name in over if (formed := self.cancel(name)) is not None]

    def done(self) -> list[Formed]:
        """The requests that need not wait any longer."""
        found: list[Formed] = []
        for name, waiting in list(self._waiting.items()):
            grammar = waiting.request.grammar
            assert grammar is not None
            if waiting.made.done():
                error = waiting.made.exception()
                form = error or self.known(grammar) or self._keep(grammar, waiting.made.result())
                found.append(Formed(waiting.request, waiting.began, form))
            elif time.monotonic() - waiting.began > SECONDS:
                waiting.made.cancel()
                text = f"the grammar is not compiled after {SECONDS:g} s; make it smaller, or try again"
                found.append(Formed(waiting.request, waiting.began, RequestError(text)))
            else:
                continue
            del self._waiting[name]
        return found

    def close(self) -> None:
        """Compile nothing any more."""
        self._waiting.clear()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

    def _keep(self, grammar: Grammar, made: "Constraint") -> "Constraint":
        self._kept[grammar] = made
        size = sum(len(one.source) + len(one.calls) for one in self._kept)
        while len(self._kept) > KEPT or (size > KEPT_BYTES and len(self._kept) > 1):
            old, _ = self._kept.popitem(last=False)
            size -= len(old.source) + len(old.calls)
        return made.fork()
