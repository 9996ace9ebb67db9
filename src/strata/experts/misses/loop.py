"""The loop that watches for messages: compiled, without the interpreter lock, in a thread of its own.

It looks at one word, pausing in between, and answers what it finds. If nothing has come for a while it sleeps for a
tick at a time, so that an idle engine costs next to nothing; whoever starts a window rings first (`ringer`), so a
message that comes during sleep, and waits for the rest of a tick, is one that nobody announced.

Whatever goes wrong, ABORT is written and DONE raised to the end before it returns, so nobody waits for an answer that
will not come.
"""

from functools import cache
from typing import Any

from numba import njit

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import call, peek, poke
from strata.experts.misses.answer import (
    BELL,
    BOX,
    BUSY,
    CLOCK,
    END,
    FAILURE,
    FUTEX,
    IDLE,
    IDLE_SLEEPS,
    NOW_LAYER,
    PART,
    PHASE,
    RANG,
    READING,
    REST,
    SERVED,
    SERVING,
    SINCE,
    SPIN,
    STEP,
    STOP,
    SYSCALL,
    TICK,
    TIME,
    WHOLE,
    compute,
    prepare,
)
from strata.experts.misses.mailbox import ABORT, BROKEN, DONE, FAILED_ITEM, RUNG, UNREAD
from strata.experts.misses.mailbox import BAD_MESSAGE as _BAD_MESSAGE
from strata.experts.pool.atomics import add, load, pause, store, system_call, timed_wait
from strata.experts.pool.region import LOST

_MONOTONIC = 1
_GIVE_BACK = 1  # what a step returns when whoever called has to do something
_LOOKS = 1024  # between two looks at the clock


@njit
def now(desk):
    """Nanoseconds on the system's monotonic clock."""
    call(peek(desk + CLOCK), _MONOTONIC, desk + TIME, 0)
    return peek(desk + TIME) * 1_000_000_000 + peek(desk + TIME + 8)


@njit
def _given_back(desk):
    """Experts are to be read: whoever called asks for them, and calls again."""
    poke(desk + PHASE, READING)
    return _GIVE_BACK


@njit
def _serve(state, desk, box, rung):
    """One step of an answer: all of it, as a rule. Returns 0, `_GIVE_BACK`, or the pool's `LOST`."""
    step = peek(desk + STEP)
    failed = peek(desk + FAILURE) if step == END else 0
    poke(desk + STEP, WHOLE)
    if step == WHOLE:
        poke(desk + NOW_LAYER, -1)
        poke(desk + SINCE, now(desk))
        store(desk + SERVING, rung)
        failed = prepare(desk)
        if failed == 0 and peek(desk + REST) > 0:
            return _given_back(desk)
    if failed == 0 and step != END:
        failed = compute(state, desk)
        if failed == 0 and step == PART:
            return _given_back(desk)
    poke(desk + BUSY, peek(desk + BUSY) + now(desk) - peek(desk + SINCE))
    poke(desk + SERVED, peek(desk + SERVED) + 1)
    if failed == 0:
        poke(desk + PHASE, IDLE)
    else:
        known = failed == LOST or failed == _BAD_MESSAGE or failed == UNREAD  # noqa: PLR1714
        store(box + ABORT, failed if known else FAILED_ITEM)
    store(desk + SERVING, 0)
    store(box + DONE, rung if failed == 0 else BROKEN)
    if failed == LOST:
        return LOST
    return _GIVE_BACK if step == PART else 0


@cache
def serving_loop() -> Any:
    """``run(state, desk)``: answer messages until STOP is set. Returns 0, or the pool's `LOST`.

    Also if experts of a message are not in memory: SERVING still says which. Whoever called asks for them, and calls
    again for a `PART` as often as some are there, and for the `END`.
    """
    mark = fingerprint()
    lost, broken = LOST, BROKEN

    def run(state, desk):
        if len(mark) == 0:  # see `worker_loop`
            return 0
        box = peek(desk + BOX)
        served, quiet, looks = load(box + DONE), now(desk), 0
        if served >= broken:  # what was given up is not begun again
            served = load(box + RUNG)
        while load(desk + STOP) == 0:
            rung = load(box + RUNG)
            if rung != served:
                how = _serve(state, desk, box, rung)
                if how != 0:
                    return lost if how == lost else 0
                quiet = now(desk)
                served, looks = rung, 0
                continue
            looks += 1
            pause()
            if looks < _LOOKS:
                continue
            looks = 0
            bell = load(desk + BELL)
            if load(desk + RANG) != 0:  # somebody has rung since
                store(desk + RANG, 0)
                quiet = now(desk)
            elif now(desk) - quiet > peek(desk + SPIN) and load(box + RUNG) == served:
                add(desk + IDLE_SLEEPS, 1)
                timed_wait(peek(desk + SYSCALL), peek(desk + FUTEX), desk + BELL, bell & 0x7FFFFFFF, desk + TICK)
        return 0

    return compiled(run, "int64(int64, int64)")


@cache
def ringer() -> Any:
    """``run(desk)``: a window begins, so messages may come; the loop shall be awake."""
    mark = fingerprint()

    def run(desk):
        store(desk + RANG, 1)
        store(desk + BELL, (load(desk + BELL) + 1) & 0x7FFFFFFF)
        system_call(peek(desk + SYSCALL), peek(desk + FUTEX), desk + BELL, 129, 0x7FFFFFFF)
        return len(mark)

    return compiled(run, "int64(int64)")
