"""Many conversations on one network: who is computed next, and where each of them goes on from."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strata.engine import (
    Event,
    Finish,
    FinishReason,
    Generation,
    Request,
    Speed,
    Timings,
    Token,
    Trace,
    Usage,
    as_ours,
    step,
)
from strata.engine.drafting.timings import Start
from strata.model.network import PASS_ROWS
from strata.session import room
from strata.session.conversation import WHOLE, Conversation
from strata.session.fingerprint import fingerprint
from strata.session.folder import Folder
from strata.session.kept import Kept
from strata.session.options import Options
from strata.session.pace import SHARE, Pace
from strata.session.queue import Entry, Queue, Stage
from strata.session.store import Place, Store

if TYPE_CHECKING:
    from strata.model import Network, State

log = logging.getLogger("strata.session")


@dataclass(frozen=True, slots=True)
class Read:
    """How far a prompt has been read.

    Attributes:
        id: of the request.
        read: tokens of the prompt that are in place.
        total: tokens of the prompt.
        cached: tokens in place that had been read for an earlier request.
    """

    id: str
    read: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Stats:
    """What is going on, and what happened so far.

    Attributes:
        queued: requests that wait.
        reading: requests whose prompt is being read.
        decoding: requests that are answered.
        prompt_tokens: tokens of all prompts that were begun.
        read_tokens: tokens of them that were really read.
        cached_tokens: tokens of them that were not, because they were known.
        generated_tokens: tokens chosen.
        finished: requests that ended without an error.
        failed: requests that ended with one.
        hits: prompts of which a beginning was known.
        misses: prompts of which nothing was.
        checkpoints: places from which conversations can go on.
        evicted: such places that were given up for want of room.
        refused: stored parts that could not be used.
        ram_bytes: memory of what is kept.
        ram_limit: its budget.
        disk_bytes: size of the files.
        disk_limit: their budget; 0 without a folder.
        reading_s: seconds of passes over prompts.
        read_speed: tokens a second that the passes of the last seconds read; tokens that were known are none of them.
        answering_s: seconds during which something was decoded, passes between its windows among them.
        answered_tokens: tokens that windows chose; the first of an answer comes with its prompt.
        answer_speed: tokens a second of all answers together, over the last seconds of those.
    """

    queued: int
    reading: int
    decoding: int
    prompt_tokens: int
    read_tokens: int
    cached_tokens: int
    generated_tokens: int
    finished: int
    failed: int
    hits: int
    misses: int
    checkpoints: int
    evicted: int
    refused: int
    ram_bytes: int
    ram_limit: int
    disk_bytes: int
    disk_limit: int
    reading_s: float
    read_speed: float
    answering_s: float
    answered_tokens: int
    answer_speed: float


class Scheduler:
    """Runs requests on a network. Not for use from several threads.

    Passes over prompts and windows take turns, so that answers go on while a prompt is read. An answer depends on its
    request alone: not on what runs beside it, in which order, or on where its prompt was gone on from.

    A pass is as long as the device likes while nobody else is there. Where passes are long (`Options.wait`), they are
    shorter while others wait, and between two of them answers go on for some windows.

    Args:
        network: the model.
        options: settings.
        trace: where to note passes and windows.
        clock: seconds that only grow.
        start: what windows took when they were measured before; None begins with nothing.

    Raises:
        StrataError: the folder cannot be used.
    """

    def __init__(
        self,
        network: "Network",
        options: Options | None = None,
        *,
        trace: Trace | None = None,
        clock: Callable[[], float] = time.monotonic,
        start: Start | None = None,
    ) -> None:
        self._network = network
        self._options = o = options or Options()
        self._trace = trace
        self._clock = clock
        self._queue = Queue(slots=o.slots, bound=o.queue, aging=o.aging)
        self._all: dict[str, Conversation] = {}
        self._unread = network.new_state()  # requests are checked against it; it stays empty
        self._timings = Timings(network.miss, start)
        # Passes end at multiples of their rows, so only there a state can be kept.
        self._rows = o.rows or PASS_ROWS
        self._pace = None if o.wait is None else Pace(o.wait)
        self._step = -(-o.step // (o.rows or PASS_ROWS)) * (o.rows or PASS_ROWS)
        self._window_next = False
        self._owed = 0.0  # seconds of windows before the next pass
        self._due: list[tuple[Conversation, bool]] = []  # to be kept before anything else is computed
        self._progress: list[Read] = []
        self._cached_tokens = self._generated_tokens = self._finished = self._failed = 0
        self._reads, self._answers = Speed(), Speed()
        self._answering: float | None = None  # since when answers go on that no window has counted yet
        folder = None
        if o.keep and o.folder:
            folder = Folder(o.folder, fingerprint(network, o.identity), reserve=o.reserve)
        self._store = Store(
            network.config,
            drafts=network.drafts,
            ram=o.ram if o.keep else 0,
            step=self._step,
            folder=folder,
            disk=o.disk,
            new_state=network.new_state,
            clock=clock,
        )

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._all

    def submit(self, request: Request, client: str = "") -> None:
        """Take a request.

        Args:
            request: its id must not be in use.
            client: whoever sent it; clients take turns. Empty stands for itself alone.

        Raises:
            QueueFullError: as many wait as may wait.
            RequestError: the request cannot be answered by this model, whenever it is tried.
        """
        Generation(self._network, self._unread, request)
        now = self._clock()
        work = len(request.prompt) - self._known(request)
        self._queue.add(request.id, now, work=work, client=client, priority=request.priority, timeout=request.timeout)
        if not self._all and self._trace is not None:
            self._trace.idle()
        self._all[request.id] = Conversation(request, now)

    def cancel(self, name: str) -> bool:
        """End a request as soon as possible, whatever its stage; its Finish comes with the next tick.

        Returns whether there is such a request.
        """
        if name in self._all:
            self._all[name].cancelled = True
        return name in self._all

    def tick(self) -> list[tuple[str, Event]]:
        """Do one unit of work: one pass over a prompt, or one window.

        Returns:
            What happened, by the id of the request. The last event of every request is a Finish.
        """
        self._progress = []
        self._keep_due()
        self._store.catch_up()
        events = self._ended_early()
        live = self._live(events)
        decoding = [entry.id for entry in self._queue if entry.stage is Stage.DECODING and entry.id in live]
        self._answering = self._answering if decoding else None
        entry = None if decoding and self._window_next else self._next(live)
        if entry is not None:
            self._window_next = True
            events += self._read(entry.id)
        elif decoding:
            began = self._clock()
            events += self._window(decoding)
            self._owed -= self._clock() - began
            self._window_next = self._owed > 0
        return events

    def progress(self) -> list[Read]:
        """Which prompts the last tick has read, and how far."""
        return self._progress

    def stats(self) -> Stats:
        """Numbers of this moment."""
        store, now, options = self._store, self._clock(), self._options
        running = sum(c.generation.tokens for c in self._all.values() if c.generation)
        return Stats(
            queued=self._queue.count(Stage.QUEUED),
            reading=self._queue.count(Stage.READING),
            decoding=self._queue.count(Stage.DECODING),
            prompt_tokens=self._reads.tokens + self._cached_tokens,
            read_tokens=self._reads.tokens,
            cached_tokens=self._cached_tokens,
            generated_tokens=self._generated_tokens + running,
            finished=self._finished,
            failed=self._failed,
            hits=store.counts.hits,
            misses=store.counts.misses,
            checkpoints=store.checkpoints,
            evicted=store.counts.evicted,
            refused=store.counts.refused,
            ram_bytes=store.ram_bytes,
            ram_limit=options.ram if options.keep else 0,
            disk_bytes=store.disk_bytes,
            disk_limit=options.disk if options.keep and options.folder else 0,
            reading_s=self._reads.seconds,
            read_speed=self._reads.rate(now),
            answering_s=self._answers.seconds,
            answered_tokens=self._answers.tokens,
            answer_speed=self._answers.rate(now),
        )

    @property
    def conversations(self) -> int:
        """Conversations that are kept."""
        return self._store.leaves

    def kept(self, most: int) -> tuple[list[Kept], float]:
        """The latest used conversations that are kept, and the time now on the clock that theirs are of."""
        return self._store.conversations(most), self._clock()

    def close(self) -> None:
        """Write everything that is kept to files, and give the folder back. Unfinished requests are not finished."""
        self._keep_due()
        self._store.close()

    def _ended_early(self) -> list[tuple[str, Event]]:
        """End what nobody wants any longer, and what took too long."""
        late = set(self._queue.expired(self._clock()))
        events: list[tuple[str, Event]] = []
        for name, conversation in list(self._all.items()):
            if not conversation.cancelled and name not in late:
                continue
            reason = FinishReason.CANCELLED if conversation.cancelled else FinishReason.TIMEOUT
            if conversation.generation:
                ends = conversation.generation.end(reason)
            else:
                ends = [Finish(reason, 0, usage=Usage(len(conversation.request.prompt)))]
            events += self._happened(conversation, ends)
        return events

    def _live(self, events: list[tuple[str, Event]]) -> set[str]:
        """Running requests that the device has memory for; the others are set aside."""
        running = [entry for entry in self._queue if entry.stage is not Stage.QUEUED]
        running.sort(key=lambda entry: (-entry.priority, entry.number))

        def out(conversation: Conversation) -> None:
            try:
                room.set_aside(self._network, conversation)
            except Exception as error:
                log.exception("request %r could not be set aside", conversation.request.id)
                events.extend(self._happened(conversation, self._broken(conversation, error)))

        live = room.those_with_room(self._network, [self._all[entry.id] for entry in running], out)
        return {conversation.request.id for conversation in live}

    def _next(self, live: Collection[str]) -> Entry | None:
        """Whose prompt is read next; one that waits needs room beside those that run."""
        now = self._clock()
        aside = {entry.id for entry in self._queue if entry.stage is Stage.READING and entry.id not in live}
        entry = self._queue.choose(now, without=aside)
        if entry is not None and entry.stage is Stage.QUEUED and live:
            together = [room.need(self._all[name]) for name in (*live, entry.id)]
            if len(live) < self._running or not self._network.fits(together):
                waiting = {one.id for one in self._queue if one.stage is Stage.QUEUED}
                return self._queue.choose(now, without=aside | waiting)
        return entry

    @property
    def _running(self) -> int:
        """Requests that have been begun."""
        return self._queue.count(Stage.READING) + self._queue.count(Stage.DECODING)

    def _read(self, name: str) -> list[tuple[str, Event]]:
        """One pass over a prompt."""
        conversation = self._all[name]
        try:
            room.bring_back(self._network, conversation)
            generation = conversation.generation or self._begin(conversation)
            before, began = generation.reading, self._clock()
            # Only at multiples of the usual length a state is kept, so passes end there, too.
            happened = generation.read(self._length(), step=self._rows, trace=self._trace)
        except Exception as error:
            log.exception("the prompt of request %r could not be read", name)
            return self._happened(conversation, self._broken(conversation, error))
        now = self._clock()
        self._reads.add(now, now - began, before - generation.reading)
        if self._pace is not None:
            self._pace.add(before - generation.reading, now - began)
            self._owed = SHARE * (now - began)
        self._queue.served(name, now, generation.reading)
        if not generation.reading and self._answering is None:
            self._answering = now
        total = len(conversation.request.prompt)
        self._progress.append(Read(name, generation.read_tokens, total, conversation.cached))
        length = generation.state.length
        if length in conversation.boundaries and not (generation.finished and generation.finished.error):
            self._due.append((conversation, length in conversation.request.marks))
        if generation.reading or generation.finished:
            self._keep_due()  # otherwise its first token need not wait for the copy
        return self._happened(conversation, happened)

    def _length(self) -> int:
        """Tokens of the next pass over a prompt."""
        if self._pace is None or len(self._all) == 1:
            return self._rows
        return self._pace.rows(self._rows)

    def _window(self, names: list[str]) -> list[tuple[str, Event]]:
        """One window over all that are past their prompts."""
        conversations, events = self._back([self._all[name] for name in names])
        generations = [c.generation for c in conversations if c.generation]
        if not generations:
            return events
        chosen = sum(generation.tokens for generation in generations)
        since = self._clock() if self._answering is None else self._answering
        try:
            happened = step(self._network, generations, trace=self._trace)
        except Exception as error:
            log.exception("a window of %s requests could not be computed", len(names))
            happened = [self._broken(conversation, error) for conversation in conversations]
        now = self._clock()
        self._answers.add(now, now - since, sum(generation.tokens for generation in generations) - chosen)
        for conversation, some in zip(conversations, happened, strict=True):
            events += self._happened(conversation, some)
        self._answering = now if self._queue.count(Stage.DECODING) else None
        return events

    def _back(self, conversations: list[Conversation]) -> tuple[list[Conversation], list[tuple[str, Event]]]:
        """Those that have their states, given back where they were set aside, and how the others ended."""
        ready: list[Conversation] = []
        events: list[tuple[str, Event]] = []
        for conversation in conversations:
            try:
                room.bring_back(self._network, conversation)
                ready.append(conversation)
            except Exception as error:
                log.exception("request %r could not go on", conversation.request.id)
                events += self._happened(conversation, self._broken(conversation, error))
        return ready, events

    def _begin(self, conversation: Conversation) -> Generation:
        """Find where a prompt can be gone on from."""
        request = conversation.request
        state, conversation.place = self._restored(request) or (self._network.new_state(), None)
        before = conversation.place.full() if conversation.place else ()
        generation = Generation(
            self._network,
            state,
            request,
            len(before),
            timings=self._timings,
            submitted=conversation.submitted,
            clock=self._clock,
        )
        conversation.begin(generation, before, self._step, same_forms=self._options.same_forms)
        self._cached_tokens += conversation.cached
        return generation

    def _restored(self, request: Request) -> "tuple[State, Place] | None":
        """The state of a known beginning of a prompt, and its place, pinned."""
        if not self._may_keep(request):
            return None
        loose = self._loose(request)
        try:
            return self._store.restore(request.salt, request.prompt, loose=loose, every=1 if loose else WHOLE)
        except Exception:
            log.exception("what is kept could not be used for request %r; its whole prompt is read", request.id)
            return None

    def _happened(self, conversation: Conversation, events: list[Event]) -> list[tuple[str, Event]]:
        """Note events of a request, and let it go after the last."""
        tokens = [event.id for event in events if isinstance(event, Token)]
        conversation.chose(tokens, same_forms=self._options.same_forms)
        for event in events:
            if isinstance(event, Finish):
                self._end(conversation, event)
        return [(conversation.request.id, event) for event in events]

    def _end(self, conversation: Conversation, finish: Finish) -> None:
        """A request is finished: keep its state for the next turn, unless it went wrong."""
        request = conversation.request
        self._generated_tokens += finish.tokens
        if finish.reason is FinishReason.ERROR:
            self._failed += 1
            self._release(conversation, None)
            for place in conversation.kept:
                self._store.discard(place)
        else:
            self._finished += 1
            self._keep(conversation, save=True)
            self._release(conversation, None)
        self._queue.remove(request.id)
        del self._all[request.id]

    def _keep_due(self) -> None:
        """Keep what has been put off until whoever waits had the first token."""
        while self._due:
            conversation, marked = self._due.pop()
            self._keep(conversation, marked=marked)

    def _keep(self, conversation: Conversation, *, marked: bool = False, save: bool = False) -> None:
        """Keep the state of a request as it is now."""
        request, generation = conversation.request, conversation.generation
        if generation is None or conversation.aside or generation.state.length == 0 or not self._may_keep(request):
            return
        state = generation.state
        try:
            self._network.settle(state)
            place, new = self._store.keep(
                request.salt,
                conversation.symbols[: state.length],
                state,
                marked=marked,
                forced={*conversation.boundaries, conversation.cached},
                save=save,
            )
        except Exception:
            # what is kept is for later; this answer does not need it
            log.exception("the state of request %r could not be kept", request.id)
            return
        if place:
            conversation.kept += [place] if new else []
            self._release(conversation, place)

    def _release(self, conversation: Conversation, place: Place | None) -> None:
        """A request is at another place now."""
        if conversation.place:
            self._store.release(conversation.place)
        conversation.place = place

    def _broken(self, conversation: Conversation, error: Exception) -> list[Event]:
        """The end of a request that met an error nobody thought of."""
        if conversation.generation:
            return conversation.generation.end(FinishReason.ERROR, error=error)
        usage = Usage(len(conversation.request.prompt))
        return [Finish(FinishReason.ERROR, 0, usage=usage, error=as_ours(error))]

    def _may_keep(self, request: Request) -> bool:
        return self._options.keep and request.keep

    def _known(self, request: Request) -> int:
        """Tokens that will probably not have to be read."""
        if not self._may_keep(request):
            return 0
        loose = self._loose(request)
        return self._store.known(request.salt, request.prompt, loose=loose, every=1 if loose else WHOLE)

    def _loose(self, request: Request) -> bool:
        """Whether it may go on from what a fresh reading would compute to other bytes."""
        return self._options.same_forms or not request.exact
