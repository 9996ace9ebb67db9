"""What the pool's threads run: one compiled loop that lives as long as the pool.

Work is published as a list of items, each a function and a part of its task (`strata.experts.kernels.task`). One word
says all there is to claim: a generation, how many items there are, and how many have been taken. An item is taken by
adding one to that word, and whose it is says what the word was: nothing can be lost to others, as with an exchange that
is tried again, so sixteen threads that begin at once need sixteen turns. A thread that comes late, with the word of an
older list in mind, takes an item of the list that there is, or nothing. The caller publishes, takes items itself, and
waits until all are done, which threads say when they find none left: that is the barrier between two phases.

An item may have to wait for a word that one before it in the list writes: an expert's down for its h. Items are taken
in their order, so whoever is to write has been taken by then, and waits for nothing or for one before it: of all that
are held the first can always go on. If a thread ends that holds one, whoever waits sees that, too, and lets go of his
own, and the list is closed before the caller is told.

A thread that finds nothing spins for some tens of microseconds and then sleeps in the kernel (futex) until something is
published. Nobody sleeps unseen: a sleeper announces itself before it looks at the word a last time, and the caller
looks for sleepers after it has published.
"""

from functools import cache
from typing import Any

from numba import njit

from strata.experts.kernels.cached import compiled
from strata.experts.kernels.fingerprint import fingerprint
from strata.experts.kernels.memory import call, peek, poke
from strata.experts.pool.atomics import add, load, pause, store, system_call

# Words of the pool's memory, in bytes. What threads write often lies on lines of its own.
CLAIM, DONE, FAILED, SLEEPERS, BELL, STOP = range(0, 6 * 64, 64)
ITEMS, WORKERS, SYSCALL, FUTEX, YIELD, SPINS = range(384, 384 + 6 * 8, 8)
THREADS = 448  # of each worker a line: whether it takes items or waits for another's, and whether it has ended
LINE, ENDED = 64, 8
TAKES, WAITS = 1, 2

ITEM = 40  # bytes: function, task, first, last, and the address of a word that is not 0 when it can begin, or 0
AFTER = 32

_COUNT, _GENERATION = 20, 40  # bits below the count of items, and below the generation
_TAKEN = (1 << _COUNT) - 1
MOST_ITEMS = _TAKEN - 4096
"""Of a list; each thread may add one more to what has been taken, when it finds nothing left."""

_LOOKS = 4095  # from one look at what has gone wrong to the next

_WAIT, _WAKE = 128, 129  # futex operations, private to the process
LOST = -1
"""What `work` returns when a thread ended in the middle of an item."""


@njit
def _dead(state):
    """Whether a thread has ended with an item in its hands."""
    for i in range(peek(state + WORKERS)):
        thread = state + THREADS + i * LINE
        if load(thread + ENDED) != 0 and load(thread) != 0:
            return True
    return False


@njit
def _await(state, after, mine):
    """Wait until a word is not 0. Returns 0, an item's error that came instead, or `LOST`."""
    looks, failed = 0, 0
    if mine != 0:
        store(mine, WAITS)
    while failed == 0 and load(after) == 0:
        looks += 1
        pause()
        if looks & _LOOKS == 0:
            system_call(peek(state + SYSCALL), peek(state + YIELD), 0, 0, 0)
            failed = load(state + FAILED)
            if failed == 0 and _dead(state):
                failed = LOST
    if mine != 0:
        store(mine, TAKES)
    return failed


@njit
def _take_all(state, mine):
    """Take items until there are none, and run them. Returns how many these were; fewer if one waits for whoever died.

    Or `LOST`, if one fails with that in a worker, as if it had died there.

    Args:
        state: of the pool.
        mine: address of the worker's line; 0 for the caller, whom no item ends.
    """
    done = 0
    while True:
        word = add(state + CLAIM, 1)
        taken = word & _TAKEN
        if taken >= (word >> _COUNT) & _TAKEN:
            return done
        item = peek(state + ITEMS) + taken * ITEM
        after, failed = peek(item + AFTER), 0
        if after != 0 and load(after) == 0:
            failed = _await(state, after, mine)
            if failed == LOST and load(state + FAILED) == 0:
                return done
        if failed == 0:
            failed = call(peek(item), peek(item + 8), peek(item + 16), peek(item + 24))
            if failed == LOST and mine != 0:
                return LOST
        if failed != 0:
            store(state + FAILED, failed)
        done += 1


@cache
def worker_loop() -> Any:
    """``run(state, me)``: take items until the pool stops."""
    mark = fingerprint()

    def run(state, me):
        if len(mark) == 0:  # its text is part of what is compiled, so that the cache on disk follows changes
            return 0
        mine = state + THREADS + me * LINE
        spins = peek(state + SPINS)
        idle = 0
        while load(state + STOP) == 0:
            bell = load(state + BELL)
            word = load(state + CLAIM)
            if word & _TAKEN < (word >> _COUNT) & _TAKEN:
                store(mine, TAKES)
                done = _take_all(state, mine)
                if done == LOST:
                    return LOST
                if done > 0:
                    add(state + DONE, done)
                store(mine, 0)
                idle = 0
            elif idle < spins:
                idle += 1
                pause()
            else:
                add(state + SLEEPERS, 1)
                if load(state + CLAIM) == word and load(state + STOP) == 0:
                    # Returns at once if the bell has been rung since it was read.
                    system_call(peek(state + SYSCALL), peek(state + FUTEX), state + BELL, _WAIT, bell & 0x7FFFFFFF)
                add(state + SLEEPERS, -1)
                idle = 0
        return 0

    return compiled(run, "int64(int64, int64)")


@njit
def _ring(state):
    """Wake whoever sleeps."""
    store(state + BELL, (load(state + BELL) + 1) & 0x7FFFFFFF)
    if load(state + SLEEPERS) > 0:
        system_call(peek(state + SYSCALL), peek(state + FUTEX), state + BELL, _WAKE, 0x7FFFFFFF)


@njit
def _lost(state, count):
    """Whether a thread has ended with an item in its hands. If so, nobody holds anything of the list any more."""
    found = _dead(state)
    if found:
        store(state + CLAIM, load(state + CLAIM) >> _GENERATION << _GENERATION)  # nothing is left to be taken
        for i in range(peek(state + WORKERS)):
            thread = state + THREADS + i * LINE
            while load(thread + ENDED) == 0 and load(thread) != 0:
                pause()
    return found and load(state + DONE) < count


@njit
def alone(items, count):
    """Run a list of items in this thread, where those before one have been run. Returns 0 or the first error."""
    for i in range(count):
        item = items + i * ITEM
        failed = call(peek(item), peek(item + 8), peek(item + 16), peek(item + 24))
        if failed != 0:
            return failed
    return 0


@njit
def work(state, items, count):
    """Run a list of items; the caller's thread takes part. Returns 0, an item's error, or `LOST`.

    All have been run when it returns, so a list may build on what the one before it has left.
    """
    if peek(state + WORKERS) == 0 or count == 1 or count > MOST_ITEMS:
        return alone(items, count)
    poke(state + ITEMS, items)
    store(state + DONE, 0)
    store(state + FAILED, 0)
    generation = ((load(state + CLAIM) >> _GENERATION) + 1) & 0x3FFFFF
    store(state + CLAIM, (generation << _GENERATION) | (count << _COUNT))
    _ring(state)
    add(state + DONE, _take_all(state, 0))
    waited = 0
    while load(state + DONE) < count:
        waited += 1
        pause()
        if waited & _LOOKS == 0:
            system_call(peek(state + SYSCALL), peek(state + YIELD), 0, 0, 0)
            if _lost(state, count):
                return LOST
    return load(state + FAILED)


@cache
def ringer() -> Any:
    """``run(state)``: wake all who sleep."""
    mark = fingerprint()

    def run(state):
        _ring(state)
        return len(mark)

    return compiled(run, "int64(int64)")
