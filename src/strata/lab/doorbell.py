"""A stand-in for the device's half of a window with misses: compiled, in a thread of its own, at full speed.

It writes messages from a deck, raises them, waits for the answers as the device does, and compares every row that
comes back with what it should be. So the protocol and the host's loop run through thousands of layers in seconds, on
any machine.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strata.experts.kernels.memory import bytes_at, call, carray, longs_at, peek
from strata.experts.misses import mailbox as box
from strata.experts.misses.mailbox import Mailbox
from strata.experts.pool.atomics import load, pause, store

TIMED_OUT, BROKEN = -1, -2
"""What `run` returns, besides the number of rows that were not as expected."""


@dataclass(frozen=True, slots=True)
class Deck:
    """Messages and their answers.

    Attributes:
        mailbox: how memory is laid out.
        messages: ``uint8 [n, bytes]``, what lies between the words and the results.
        pairs: ``bool [n, pairs]``, whose rows are asked for.
        answers: ``float32 [n, pairs, H]``.
    """

    mailbox: Mailbox
    messages: NDArray[np.uint8]
    pairs: NDArray[np.bool_]
    answers: NDArray[np.float32]

    @classmethod
    def empty(cls, mailbox: Mailbox, count: int) -> "Deck":
        """Room for so many."""
        size = mailbox.results - box.HEADER
        rows = np.zeros((count, mailbox.pairs, mailbox.hidden), np.float32)
        return cls(mailbox, np.zeros((count, size), np.uint8), np.zeros((count, mailbox.pairs), np.bool_), rows)

    def write(
        self, at: int, layer: int, q: NDArray[np.int8], s: NDArray[np.float32], missing: list[tuple[int, list[int]]]
    ) -> None:
        """Write one message; its answers are the caller's to write.

        Args:
            at: which.
            layer: number of the layer.
            q: ``int8 [T, H]``, codes in the order of the row.
            s: ``float32 [T, H / 32]``.
            missing: experts and the numbers of their pairs.
        """
        m, (rows, width) = self.mailbox, q.shape
        whole = np.zeros(m.results, np.uint8)
        m.view(whole, box.HEADER, np.int32, 4)[:] = layer, rows, len(missing), len(missing)
        m.view(whole, m.experts, np.int32, m.pairs)[: len(missing)] = [expert for expert, _ in missing]
        m.view(whole, m.counts, np.int32, m.pairs)[: len(missing)] = [len(pairs) for _, pairs in missing]
        numbers = m.view(whole, m.numbers, np.int32, m.pairs, box.MOST_ROWS)
        for to, (_, pairs) in zip(numbers, missing, strict=False):
            to[: len(pairs)] = pairs
            self.pairs[at, pairs] = True
        codes = m.view(whole, m.codes, np.int8, rows, 2, width // 32, 16)
        codes[:] = q.reshape(rows, width // 32, 2, 16).transpose(0, 2, 1, 3)
        m.view(whole, m.scales, np.float32, rows, width // 32)[:] = s
        self.messages[at] = whole[box.HEADER :]


@cache
def _device() -> Any:  # noqa: C901  # one loop
    header, rung, done, broken = box.HEADER, box.RUNG, box.DONE, box.BROKEN
    timed_out, gone = TIMED_OUT, BROKEN

    def run(  # type: ignore[no-untyped-def]  # noqa: ANN202, C901, PLR0912  # compiled
        memory, results, deck, size, pairs, answers, most, width, order, rounds, first, times, facts,  # noqa: ANN001
    ):  # fmt: skip
        # facts: address of clock_gettime, room for its answer, and nanoseconds of patience.
        message, wrong = carray(bytes_at(memory + header), size), 0
        picks, took = carray(longs_at(order), rounds), carray(longs_at(times), rounds)
        here = carray(longs_at(results), most * width // 2)
        clock, time, patience = peek(facts), facts + 16, peek(facts + 8)
        for r in range(rounds):
            k = picks[r]
            source, asked = carray(bytes_at(deck + k * size), size), carray(bytes_at(pairs + k * most), most)
            expected = carray(longs_at(answers + k * most * width * 4), most * width // 2)
            for i in range(size):
                message[i] = source[i]
            for p in range(most):
                if asked[p]:
                    for i in range(p * width // 2, (p + 1) * width // 2):
                        here[i] = -1  # two numbers that are none
            call(clock, 1, time, 0)
            began = peek(time) * 1_000_000_000 + peek(time + 8)
            store(memory + rung, first + r)
            spent, looks, answered = 0, 0, load(memory + done)
            while answered < first + r:
                pause()
                looks += 1
                if looks & 1023 == 0:
                    call(clock, 1, time, 0)
                    spent = peek(time) * 1_000_000_000 + peek(time + 8) - began
                    if spent > patience:
                        return timed_out
                answered = load(memory + done)
            call(clock, 1, time, 0)
            took[r] = peek(time) * 1_000_000_000 + peek(time + 8) - began
            if answered >= broken:
                return gone
            for p in range(most):
                if asked[p]:
                    for i in range(p * width // 2, (p + 1) * width // 2):
                        if here[i] != expected[i]:
                            wrong += 1
                            break
        return wrong

    kept = njit(nogil=True)(run)
    kept.compile(f"int64({', '.join(['int64'] * 13)})")
    return kept


def run(
    memory: NDArray[np.uint8], deck: Deck, order: NDArray[np.int64], *, patience: float = 60.0
) -> tuple[int, NDArray[np.int64]]:
    """Raise messages one after the other.

    Args:
        memory: shared with the host's loop.
        deck: of messages.
        order: which, ``int64 [rounds]``.
        patience: seconds for one answer.

    Returns:
        How many rows were not as expected (or `TIMED_OUT`, `BROKEN`), and nanoseconds of each round.
    """
    import ctypes

    m, times = deck.mailbox, np.zeros(len(order), np.int64)
    clock = ctypes.cast(ctypes.CDLL(None).clock_gettime, ctypes.c_void_p).value
    facts = np.array([clock, round(patience * 1e9), 0, 0], np.int64)
    first = int(m.words(memory)[0]) + 1
    at = memory.ctypes.data
    wrong = _device()(
        at, at + m.results, deck.messages.ctypes.data, deck.messages.shape[1], deck.pairs.ctypes.data,
        deck.answers.ctypes.data, m.pairs, m.hidden, order.ctypes.data, len(order), first, times.ctypes.data,
        facts.ctypes.data,
    )  # fmt: skip
    return int(wrong), times
