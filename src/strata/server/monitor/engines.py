"""What an engine says of itself, put into the words of a snapshot."""

import asyncio
import contextlib
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import msgspec

from strata.errors import StrataError
from strata.server.monitor.numbers import Numbers
from strata.server.monitor.snapshot import Cache, Cancels, Drafts, Engine, Experts, Guessed, Kept, Pool, Slots, Speed
from strata.server.served import Served
from strata.worker import Holdings, State

if TYPE_CHECKING:
    from concurrent.futures import Future


class Look:
    """One engine, looked at again and again.

    Counters come with its signs of life and cost nothing; what it holds it is asked for, and never waited for longer
    than said.
    """

    def __init__(self, served: Served) -> None:
        self.served = served
        self._asked: Future[Any] | None = None
        self._holdings: Holdings | None = None  # None while the engine has not said it
        self._values: dict[str, Any] | None = None  # newer than the last sign of life

    async def ask(self, seconds: float) -> None:
        """Ask what it holds, and wait for it at most so long.

        An answer that comes later is there at the next look, for what is held; its counters are old by then.
        """
        late = self._asked
        if late is not None and late.done():
            self._asked = None
            with contextlib.suppress(StrataError):
                self._holdings = late.result().holdings
        asked = self._asked = self._asked or self.served.client.ask_stats()
        await _done(asked, seconds)
        if self._asked is not asked or not asked.done():  # somebody else has taken it meanwhile
            return
        try:
            told = asked.result()
            self._holdings, self._values = told.holdings, told.values
        except StrataError:  # there is no engine
            self._holdings = self._values = None
        self._asked = None

    def engine(self) -> Engine:
        """What is known now."""
        served = self.served
        status, ready = served.status, served.known
        values, self._values = self._values, None
        numbers = Numbers.of(served.client.stats if values is None else values)
        told = Engine(
            model=served.name,
            state=str(status.state),
            reason=status.reason,
            loaded=status.loaded,
            silent=status.silent,
            restarts=status.restarts,
            stalls=status.stalls,
            longest_silence=status.longest,
            waiting=status.waiting,
            running=status.running,
            finished=numbers.finished,
            failed=numbers.failed,
            generated_tokens=numbers.generated_tokens,
            cancels=Cancels(**asdict(status.cancels)),
            speed=_speed(numbers, going=status.state in {State.READY, State.BUSY}),
            cache=_cache(numbers, self._holdings),
            drafts=_drafts(numbers),
            experts=_experts(numbers),
            slots=_slots(numbers),
            phases=numbers.phases,
            overcommit=numbers.overcommit,
            memory=tuple(Pool(**msgspec.structs.asdict(p)) for p in (self._holdings or Holdings()).pools),
        )
        if ready is None:
            return told
        return msgspec.structs.replace(
            told,
            kind=ready.engine,
            device=ready.device,
            placed=ready.placed,
            why=ready.why,
            context=ready.context,
            conversations=ready.limits.conversations,
            queue=ready.limits.queue,
        )


async def _done(future: "Future[Any]", seconds: float) -> None:
    """Wait until a future of other threads is done, without taking its result or cancelling it."""
    loop, fresh = asyncio.get_running_loop(), asyncio.Event()

    def wake(_: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(fresh.set)

    future.add_done_callback(wake)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await fresh.wait()


def _speed(n: Numbers, *, going: bool) -> Speed:
    return Speed(
        prompt=n.read_speed if going else 0.0,
        answer=n.answer_speed if going else 0.0,
        read_tokens=n.read_tokens,
        reading=n.reading_s,
        answered_tokens=n.answered_tokens,
        answering=n.answering_s,
    )


def _cache(n: Numbers, holdings: Holdings | None) -> Cache:
    return Cache(
        conversations=None if holdings is None else holdings.conversations,
        kept=tuple(Kept(**msgspec.structs.asdict(one)) for one in (holdings or Holdings()).kept),
        checkpoints=n.checkpoints,
        ram_bytes=n.ram_bytes,
        ram_limit=n.ram_limit,
        disk_bytes=n.disk_bytes,
        disk_limit=n.disk_limit,
        hits=n.hits,
        misses=n.misses,
        prompt_tokens=n.prompt_tokens,
        cached_tokens=n.cached_tokens,
        evicted=n.evicted,
        refused=n.refused,
    )


def _drafts(n: Numbers) -> Drafts:
    pairs = zip(n.drafts.get("offered", ()), n.drafts.get("accepted", ()), strict=False)
    return Drafts(
        depths=tuple(Guessed(offered=offered, accepted=accepted) for offered, accepted in pairs),
        sources={name: Guessed(offered=offered, accepted=right) for name, (offered, right) in n.sources.items()},
        windows=n.windows,
    )


def _slots(n: Numbers) -> Slots | None:
    if not n.slot_experts:
        return None
    return Slots(count=n.slots, held=n.slots_held, experts=n.slot_experts, bytes=n.slot_bytes)


def _experts(n: Numbers) -> Experts:
    counts = {tier: n.experts.get(tier, 0) for tier in ("vram", "ram", "ssd")}
    return Experts(tiers=any(counts.values()), **counts)
