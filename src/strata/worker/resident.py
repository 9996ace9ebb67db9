"""The engine with a model in it: a scheduler, and the translation between its events and messages."""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import msgspec

from strata.engine import Budget, Finish, FinishReason, Limit, Request, Sampling, Token, Trace
from strata.errors import QueueFullError
from strata.loading import resizing
from strata.loading.calibration.use import loaded_start
from strata.loading.device import CPU, Placement
from strata.loading.files import ModelFile
from strata.loading.network import load_network
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from strata.text import Tokenizer
from strata.worker import filename, values
from strata.worker import messages as m
from strata.worker.engine import Answer, OnLoad, refused
from strata.worker.errors import Kind, is_device, is_memory
from strata.worker.forms import Formed, Forms

if TYPE_CHECKING:
    from strata.engine.constraint import Constraint
    from strata.loading.learned import Learned
    from strata.loading.storage import Storage
    from strata.model import Network
    from strata.ops.tiers.tier import Tier
    from strata.text.grammar import Grammars


@dataclass(slots=True)
class _Times:
    """When things happened to a request, in monotonic seconds."""

    submitted: float
    started: float | None = None
    first: float | None = None


LOOK = 0.005
"""Seconds between two looks at whether a form is compiled, while there is nothing else to do."""

TOGETHER = 2048
"""Most tokens of a prompt that a GPU reads at once: others wait for a tenth of a second."""

WAIT = 0.3
"""Seconds that others wait for a pass over a prompt whose experts have to come, if that can be."""

KEPT = 64
"""Most conversations that are listed one by one."""


def _suited(options: Options, network: "Network") -> Options:
    """Options as the device wants them."""
    # Where experts have to come for each pass, passes are few and long; while others wait, as measured times say.
    coming = getattr(network.ops, "tier", None) is not None
    rows = options.rows or (network.ops.pass_rows if coming else min(network.ops.pass_rows, TOGETHER))
    wait = options.wait or (WAIT if coming else None)
    return replace(options, same_forms=network.same_forms, rows=rows, wait=wait)


class Resident:
    """A model in memory that answers messages."""

    def __init__(
        self,
        scheduler: Scheduler,
        tokenizer: Tokenizer,
        ready: m.Ready,
        sampling: Sampling,
        trace: Trace,
        network: "Network",
        *,
        beside: bool = False,
        storage: "Storage | None" = None,
        placement: Placement | None = None,
        learned: "Learned | None" = None,
    ) -> None:
        """Put together.

        Args:
            scheduler: computes.
            tokenizer: for the bytes of tokens.
            ready: what to say of itself.
            sampling: values used where a request says nothing.
            trace: where the scheduler notes its windows.
            network: what the scheduler computes with.
            beside: compile the forms of answers beside the work; otherwise a submission waits for its own.
            storage: what reads its weights meanwhile.
            placement: what it takes of its device.
            learned: where what its cache of experts learns is kept.
        """
        self._storage = storage
        self._placement = placement or Placement(CPU)
        self._learned = learned
        self._tier: Tier | None = getattr(getattr(network, "ops", None), "tier", None)
        self.ready = ready
        self.network = network
        self._scheduler = scheduler
        self._tokenizer = tokenizer
        self._sampling = sampling
        self._trace = trace
        self._times: dict[str, _Times] = {}
        self._grammars: Grammars | None = None
        self._forms = Forms(self._compiled)
        self._beside = beside
        self._making = Lock()
        self._early: list[Answer] = []  # ends of requests that the scheduler has never seen
        # Rows of the vocabulary that stand for nothing: padding entries, and rows beyond the tokenizer's list.
        self._banned = sorted(tokenizer.unused_ids | set(range(tokenizer.size, ready.vocabulary)))

    @classmethod
    def load(cls, setup: m.ModelEngine, on_load: OnLoad) -> Self:
        """Load a model file.

        Raises:
            StrataError: it cannot be loaded.
        """
        file = ModelFile.open(None if setup.path is None else filename.read(setup.path))
        return cls.of(
            file,
            threads=setup.threads,
            context=setup.context,
            rope_scale=setup.rope_scale,
            kv=setup.kv,
            device=setup.device,
            ram=setup.ram,
            ngram=setup.ngram,
            vram=setup.vram,
            headroom=setup.headroom,
            drafts=setup.drafts,
            profiles=setup.profiles,
            on_load=on_load,
            options=setup.options,
            beside=True,
        )

    @classmethod
    def of(
        cls,
        file: ModelFile,
        *,
        threads: int | None = None,
        context: int | None = None,
        rope_scale: float | None = None,
        kv: str | None = None,
        device: str = "auto",
        ram: int | None = None,
        ngram: str | None = None,
        vram: int | None = None,
        headroom: int | None = None,
        drafts: bool = True,
        profiles: str | None = None,
        on_load: OnLoad | None = None,
        options: dict[str, Any] | None = None,
        beside: bool = False,
    ) -> Self:
        """Load an open file.

        Args:
            file: the model.
            threads: CPU threads; None for what suits it.
            context: tokens a conversation may hold; None for what model and scale allow.
            rope_scale: factor of YaRN; 1 is off, None leaves what the file has.
            kv: type in which keys and values are kept; None for the device's own.
            device: where to run, see `strata.loading.network.load_network`.
            ram: bytes of main memory to plan with; None for what is available.
            ngram: how rows of the n-gram table are read; None for what suits it.
            vram: bytes of the GPU's memory to plan with; None for all that is free.
            headroom: bytes of these to leave free; None for the plan's own.
            drafts: whether the draft head is loaded.
            profiles: folder in which what a GPU's cache of experts learns is kept; None keeps nothing.
            on_load: called with (bytes loaded, bytes to load).
            options: values of the scheduler's options by name.
            beside: compile forms of answers beside the work.

        Raises:
            StrataError: it cannot be loaded, or an option is unknown or out of range.
        """
        sampling = file.sampling
        scheduling = values.options(options or {}, identity=file.fingerprint)
        loaded = load_network(
            file,
            threads=threads,
            context=context,
            rope_scale=rope_scale,
            kv=kv,
            device=device,
            ram=ram,
            ngram=ngram,
            vram=vram,
            headroom=headroom,
            drafts=drafts,
            conversations=scheduling.slots,
            parked=scheduling.ram if scheduling.keep else 0,
            profiles=None if profiles is None else Path(filename.read(profiles)),
            on_load=on_load,
        )
        network, unused, placement, storage, learned = loaded
        if placement.parked is not None:
            scheduling = replace(scheduling, ram=min(scheduling.ram, placement.parked))
        if network.weights.mtp is not None:
            network = replace(network, drafts=True)
        trace, start = Trace(), loaded_start(file, loaded)
        scheduler = Scheduler(network, _suited(scheduling, network), trace=trace, start=start)
        config = network.config
        ready = m.Ready(
            model=config.name,
            context=config.context,
            vocabulary=config.V,
            limits=m.Limits(scheduling.slots, scheduling.queue, head=network.drafts),
            fingerprint=file.fingerprint,
            stop_ids=file.tokenizer.eos_ids,
            sampling=values.plain(sampling),
            unused=unused,
            rope_scale=config.rope.scale,
            kv=config.qsa.kv,
            device=placement.device,
            placed=str(placement),
            why=placement.why,
            plan=placement.plan,
            notes=(*placement.notes, *((learned.note,) if learned is not None and learned.note else ())),
        )
        return cls(
            scheduler,
            file.tokenizer,
            ready,
            sampling,
            trace,
            network,
            beside=beside,
            storage=storage,
            placement=placement,
            learned=learned,
        )

    @property
    def idle(self) -> bool:
        """Whether there is nothing to compute."""
        return self._scheduler.idle and not self._forms and not self._early

    def wait(self) -> float:
        """There is always something to do, unless all that there is waits for its form."""
        return 0.0 if self._early or not self._scheduler.idle else LOOK

    def submit(self, request: m.Submit) -> None:
        """Take a request."""
        values.check(request, self.ready)
        grammar = request.grammar
        form = None
        if grammar is not None and (form := self._forms.known(grammar)) is None:
            if self._beside:
                self._wait_for_form(request)
                return
            form = self._forms.compiled(grammar)
        self._submit(request, form, time.monotonic())

    def _wait_for_form(self, request: m.Submit) -> None:
        values.sampling(request.sampling, self._sampling)
        values.drafting(request.drafting)
        slots, queue = self.ready.limits.conversations, self.ready.limits.queue
        if len(self._forms) >= slots + queue:
            raise QueueFullError(running=slots, waiting=len(self._forms) - slots, bound=queue)
        self._forms.begin(request)

    def _submit(self, request: m.Submit, form: "Constraint | None", began: float) -> None:
        """Give a request to the scheduler; what it waited for its form counts."""
        waited = time.monotonic() - began
        stops = self.ready.stop_ids if request.stop_ids is None else request.stop_ids
        self._scheduler.submit(
            Request(
                id=request.id,
                prompt=request.prompt,
                sampling=values.sampling(request.sampling, self._sampling),
                stop_ids=frozenset(stops),
                max_tokens=request.max_tokens,
                drafting=values.drafting(request.drafting),
                constraint=self._constraint(request, form),
                logprobs=request.logprobs,
                banned=self._banned,
                priority=request.priority,
                timeout=None if request.timeout is None else max(request.timeout - waited, 1e-3),
                keep=request.keep,
                marks=request.marks,
                salt=request.salt,
                exact=request.exact,
            ),
            client=request.client,
        )
        self._times[request.id] = _Times(began)

    def cancel(self, request: str) -> None:
        """End a request; its last event comes with the next unit of work."""
        formless = self._forms.cancel(request)
        if formless is None:
            self._scheduler.cancel(request)
        else:
            self._early.append(_unread(formless, "cancelled"))

    def tick(self) -> Sequence[Answer]:
        """One prompt pass or one window."""
        answers = self._formed()
        if self._scheduler.idle:
            return answers
        pieces: dict[str, list[m.Piece]] = {}
        began = time.monotonic()
        events = self._scheduler.tick()
        now = time.monotonic()
        if self._learned is not None and self._tier is not None:
            self._learned.keep(self._tier.windows)
        for read in self._scheduler.progress():
            times = self._times[read.id]
            times.started = times.started or began
            answers.append(m.Progress(read.id, read.read, read.total, read.cached, now))
        for name, event in events:
            times = self._times[name]
            if isinstance(event, Token):
                times.first = times.first or now
                piece = m.Piece(event.id, self._tokenizer.token_bytes(event.id), event.logprob, event.top)
                pieces.setdefault(name, []).append(piece)
                continue
            if name in pieces:  # what came before it
                answers.append(m.Tokens(name, tuple(pieces.pop(name)), now))
            answers.append(self._ended(name, event, self._times.pop(name), now))
        return [*answers, *(m.Tokens(name, tuple(found), now) for name, found in pieces.items())]

    def stats(self) -> dict[str, Any]:
        """Counters."""
        found = asdict(self._scheduler.stats()) | self._trace.totals.values()
        found["overcommit"] = self._trace.watch.wrong
        if self._tier is not None:
            found |= self._tier.gauges()
        return found | self._storage.stats() if self._storage else found

    def holdings(self) -> m.Holdings:
        """What is kept of conversations, and memory of the device."""
        found, now = self._scheduler.kept(most=KEPT)
        kept = (
            m.Kept(c.tokens, c.in_memory, c.on_disk, c.shared, c.ram_bytes, None if c.used is None else now - c.used)
            for c in found
        )
        return m.Holdings(tuple(kept), self._scheduler.conversations, self._pools())

    def trace(self, windows: int | None = None) -> bytes:
        """The last windows."""
        return self._trace.export(windows).encode()

    def resize(self, vram: int, nonce: int = 0) -> m.Resized:
        """Take at most so many bytes of the GPU's memory from now on.

        Raises:
            RequestError: no such size makes sense for this model.
            RoomError: it would grow, and so much memory is not free; nothing has changed.
            TierError: the system cannot take slots away.
        """
        self._placement = resizing.resize(self._tier, self._placement, vram)
        assert self._tier is not None, "only experts in tiers can be resized"
        self.ready = msgspec.structs.replace(self.ready, placed=str(self._placement), plan=self._placement.plan)
        self._trace.watch.reset()
        gauges = self._tier.gauges()
        slots, experts, nbytes = (gauges[name] for name in ("slots", "slot_experts", "slot_bytes"))
        return m.Resized(nonce, vram, self.ready.placed, slots, experts, nbytes, self.ready.plan)

    def close(self) -> None:
        """Complete what is being saved."""
        self._forms.close()
        if self._learned is not None and self._tier is not None:
            self._learned.close(self._tier.windows)
        self._scheduler.close()
        if self._storage:
            self._storage.end()

    def _pools(self) -> tuple[m.Pool, ...]:
        if not self.ready.device.startswith("cuda"):
            return ()
        import torch

        free, total = torch.cuda.mem_get_info(self.ready.device)
        slots = 0 if self._tier is None else self._tier.room.beside
        taken = torch.cuda.memory_reserved(self.ready.device) + slots
        used = torch.cuda.memory_allocated(self.ready.device) + slots
        return (m.Pool(torch.cuda.get_device_name(self.ready.device), total, free, taken, used),)

    def _formed(self) -> list[Answer]:
        """Submit what has its form now, and say what has ended without."""
        ended, self._early = self._early, []
        for formed in self._forms.late():
            ended.append(_unread(formed, "timeout"))
        for formed in self._forms.done():
            if isinstance(formed.form, MemoryError):
                raise formed.form
            if isinstance(formed.form, BaseException):
                ended.append(refused(formed.request.id, formed.form))
                continue
            try:
                self._submit(formed.request, formed.form, formed.began)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001  # a fault in one request is that request's
                ended.append(refused(formed.request.id, error))
        return ended

    def _constraint(self, request: m.Submit, form: "Constraint | None") -> "Constraint | None":
        budget = request.budget
        if budget is None:
            return form
        return Budget(self._limit(budget), self.ready.vocabulary, form)

    def _limit(self, budget: m.Budget) -> Limit:
        return Limit(budget.most, budget.closing, budget.end, budget.call, self._spelled)

    def _spelled(self, token: int) -> bytes:
        return self._tokenizer.token_bytes(token) if token < self._tokenizer.size else b""

    def _compiled(self, grammar: m.Grammar) -> "Constraint":
        """Compile a form; called from other threads."""
        from strata.text.grammar import Grammar, Grammars
        from strata.text.grammar import Kind as Language

        with self._making:
            self._grammars = self._grammars or Grammars(self._tokenizer, self.ready.vocabulary)
        body = None if grammar.kind == "calls" else Grammar(Language(grammar.kind), grammar.source)
        return self._grammars.constraint(body, after=grammar.after, calls=grammar.calls)

    def _ended(self, name: str, event: Finish, times: _Times, now: float) -> m.Finished | m.Failed:
        if event.reason is FinishReason.ERROR:
            error = event.error
            if error is not None and is_memory(error):
                return m.Failed(name, Kind.OUT_OF_MEMORY, f"memory ran out while this was answered: {error}")
            if error is not None and is_device(error):
                return m.Failed(name, Kind.ENGINE_DIED, f"the GPU failed while this was answered: {error}")
            return m.Failed(name, Kind.FAILED, str(error), type(error).__name__)
        started = now if times.started is None else times.started
        first = now if times.first is None else times.first
        usage = m.Usage(
            prompt=event.usage.prompt_tokens,
            cached=event.usage.cached_tokens,
            generated=event.tokens,
            drafted=sum(event.usage.drafted.values()),
            accepted=sum(event.usage.accepted.values()),
            windows=event.usage.windows,
            waiting_s=started - times.submitted,
            reading_s=first - started,
            decoding_s=now - first,
        )
        return m.Finished(name, event.reason, usage, event.stop_id)


def _unread(formed: Formed, reason: str) -> m.Finished:
    """The end of a request that never had its form."""
    usage = m.Usage(len(formed.request.prompt), waiting_s=time.monotonic() - formed.began)
    return m.Finished(formed.request.id, reason, usage)
