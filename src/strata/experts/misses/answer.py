"""One message answered: the rows of the experts that the GPU misses, from where they lie, with the judge's bytes.

Rows come in the eight bits that the GPU's own kernels read and go back as float32 without router weights, each to the
place of its pair. What is between is `strata.experts.compute.moe` without its first step and its last.
"""

import ctypes
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from strata.experts.compute.linear import SHARED, run_all
from strata.experts.compute.matrix import ADDRESS, CODE, EACH, OFFSET, ORDER, OUTPUTS, ROW, WIDTH
from strata.experts.compute.shares import share, smallest
from strata.experts.compute.steps import (
    COUNTER,
    DONE,
    DOWN,
    EXPERT_TASK,
    GATE,
    GATE_CODE,
    HAVE,
    OF,
    OFFSET_AT,
    ORDER_AT,
    READY,
    RECORDS,
    UP,
    UP_CODE,
    matrix_task,
    records_bytes,
)
from strata.experts.errors import KernelError
from strata.experts.kernels.activations import aligned
from strata.experts.kernels.memory import carray, ints_at, longs_at, peek, poke
from strata.experts.kernels.record import GROUP, RECORD
from strata.experts.kernels.task import LIMIT, WEIGHTS
from strata.experts.misses.mailbox import BAD_MESSAGE, COUNT, HEADER, LAYER, MOST_ROWS, ROWS, Mailbox
from strata.experts.misses.rows import arrange, table
from strata.experts.pool.region import ITEM, WORKERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strata.experts.compute.matrix import Stored
    from strata.experts.compute.moe import Expert

# Words of the desk, in bytes: where the loop finds everything it works with.
BOX, LAYERS, NUMBER, EXPERTS, TOPK, HIDDEN, INNER = range(0, 56, 8)
AT_EXPERTS, AT_COUNTS, AT_NUMBERS, AT_CODES, AT_SCALES, AT_RESULTS = range(56, 104, 8)
GATE_RECORDS, UP_RECORDS, DOWN_RECORDS, GATES, UPS, TABLES, ITEMS, TASKS, COUNTERS, UP_CODE_AT = range(104, 184, 8)
# What it is doing, for whoever asks why nothing comes back.
SERVING, NOW_LAYER, NOW_COUNT, PHASE, SINCE = range(192, 232, 8)
# What it has done.
SERVED, SERVED_EXPERTS, SERVED_PAIRS, BUSY, IDLE_SLEEPS, SERVED_BYTES = range(232, 280, 8)
# How to wait.
STOP, BELL, RANG, SPIN, CLOCK, SYSCALL, FUTEX = range(280, 336, 8)
TICK, TIME = 336, 352  # two words each: seconds and nanoseconds
# Experts that are not in memory yet: address of whoever is not, the message's experts to compute now, how many these
# are, how many are still to come, what is to be done, and how a part of it went. Behind them, room for a row.
NOBODY, PICKS, PICKED, REST, STEP, FAILURE, ROOM = range(368, 424, 8)
DESK = 448
_FACTS = 6  # words of a layer: descriptors of gate, up and down, addresses of every expert's, tables of gate and up

IDLE, ARRANGING, MULTIPLYING, READING = range(4)
"""Phases of an answer."""

WHOLE, PART, END = range(3)
"""Steps: a new message; those experts of it that are picked, and nothing else; the answer is complete, or failed."""


@njit
def placed(task, address, descriptor):
    """Let a matrix task read an expert where it lies, and nothing behind it."""
    poke(task + WEIGHTS, address)
    poke(task + LIMIT, address + peek(descriptor + ROW) * peek(descriptor + OUTPUTS))


@njit
def sound(desk, header, counts, experts, numbers):
    """Whether a message can be answered without reading or writing where nothing is."""
    layer, rows, count = header[LAYER], header[ROWS], header[COUNT]
    pairs = rows * peek(desk + TOPK)
    if layer < 0 or layer >= peek(desk + NUMBER) or rows < 1 or rows > MOST_ROWS or count < 1 or count > pairs:
        return False
    for i in range(count):
        if experts[i] < 0 or experts[i] >= peek(desk + EXPERTS) or counts[i] < 1 or counts[i] > rows:
            return False
        for k in range(counts[i]):
            if numbers[MOST_ROWS * i + k] < 0 or numbers[MOST_ROWS * i + k] >= pairs:
                return False
    return True


@njit
def prepare(desk):
    """Read a message: its rows to records, and of its experts those that are here are picked. 0 or `BAD_MESSAGE`.

    Args:
        desk: see the words above.
    """
    box, topk = peek(desk + BOX), peek(desk + TOPK)
    header = carray(ints_at(box + HEADER), 4)
    most = MOST_ROWS * topk
    experts = carray(ints_at(peek(desk + AT_EXPERTS)), most)
    counts = carray(ints_at(peek(desk + AT_COUNTS)), most)
    numbers = carray(ints_at(peek(desk + AT_NUMBERS)), most * MOST_ROWS)
    if not sound(desk, header, counts, experts, numbers):
        return BAD_MESSAGE
    layer, rows, count = np.int64(header[LAYER]), np.int64(header[ROWS]), np.int64(header[COUNT])
    facts = peek(desk + LAYERS) + 8 * _FACTS * layer
    gate, up, where, wide = peek(facts), peek(facts + 8), peek(facts + 24), peek(peek(facts) + WIDTH)
    poke(desk + NOW_LAYER, layer)
    poke(desk + NOW_COUNT, count)
    poke(desk + PHASE, ARRANGING)

    # Who is here.
    picks, picked, nobody = carray(longs_at(peek(desk + PICKS)), most), 0, peek(desk + NOBODY)
    for i in range(count):
        if nobody == 0 or peek(where + 24 * experts[i]) != nobody:
            picks[picked] = i
            picked += 1
    poke(desk + PICKED, picked)
    poke(desk + REST, count - picked)

    # Rows to records.
    gate_size, up_size = records_bytes(gate), records_bytes(up)
    shares = peek(gate + ORDER) == peek(up + ORDER) and peek(gate + OFFSET) == peek(up + OFFSET)
    gate_places, up_places, room = peek(facts + 32), peek(facts + 40), peek(desk + ROOM)
    for t in range(rows):
        codes, scales = peek(desk + AT_CODES) + wide * t, peek(desk + AT_SCALES) + wide // 8 * t
        to = peek(desk + GATE_RECORDS) + gate_size * t
        arrange(codes, scales, wide, gate_places, peek(gate + OFFSET), room, to)
        if not shares:
            to = peek(desk + UP_RECORDS) + up_size * t
            arrange(codes, scales, wide, up_places, peek(up + OFFSET), room, to)
    return 0


@njit
def compute(state, desk):  # noqa: PLR0915  # one plan, from top to bottom
    """Compute the experts of a message that are picked. Returns 0, an item's error, or the pool's `LOST`.

    Args:
        state: of the pool.
        desk: see the words above.
    """
    topk = peek(desk + TOPK)
    most = MOST_ROWS * topk
    experts = carray(ints_at(peek(desk + AT_EXPERTS)), most)
    counts = carray(ints_at(peek(desk + AT_COUNTS)), most)
    numbers = carray(ints_at(peek(desk + AT_NUMBERS)), most * MOST_ROWS)
    picks, count = carray(longs_at(peek(desk + PICKS)), most), peek(desk + PICKED)
    facts = peek(desk + LAYERS) + 8 * _FACTS * peek(desk + NOW_LAYER)
    gate, up, down, where = peek(facts), peek(facts + 8), peek(facts + 16), peek(facts + 24)
    wide, inner, threads = peek(gate + WIDTH), peek(gate + OUTPUTS), peek(state + WORKERS) + 1
    gate_size, up_size, down_size = records_bytes(gate), records_bytes(up), records_bytes(down)
    shares = peek(gate + ORDER) == peek(up + ORDER) and peek(gate + OFFSET) == peek(up + OFFSET)
    others = peek(desk + GATE_RECORDS) if shares else peek(desk + UP_RECORDS)

    # Items.
    row_bytes = (peek(gate + ROW) + peek(up + ROW)) * inner + peek(down + ROW) * wide
    shared = threads > 1 and row_bytes * count >= SHARED
    sharing, listed, least = threads if shared else 1, 0, smallest(peek(gate + ROW) + peek(up + ROW))
    items, tasks, counters = peek(desk + ITEMS), peek(desk + TASKS), peek(desk + COUNTERS)

    # Gate and up. A table's columns: gate's inputs, up's, gate's outputs, up's, h as records, results.
    table, column, pairs = peek(desk + TABLES), 8 * MOST_ROWS * most, 0
    poke(desk + PHASE, MULTIPLYING)
    for j in range(count):
        i = picks[j]
        task, line = tasks + EXPERT_TASK * j, table + 8 * MOST_ROWS * j
        for k in range(counts[i]):
            pair, at = np.int64(numbers[MOST_ROWS * i + k]), line + 8 * k
            t = pair // topk
            poke(at, peek(desk + GATE_RECORDS) + gate_size * t)
            poke(at + column, others + up_size * t)
            poke(at + 2 * column, peek(desk + GATES) + 4 * inner * pair)
            poke(at + 3 * column, peek(desk + UPS) + 4 * inner * pair)
            poke(at + 4 * column, peek(desk + DOWN_RECORDS) + down_size * pair)
            poke(at + 5 * column, peek(desk + AT_RESULTS) + 4 * wide * pair)
            pairs += 1
        poke(task + GATE_CODE, peek(gate + CODE))
        poke(task + UP_CODE, peek(up + CODE))
        matrix_task(task + GATE, gate, experts[i], counts[i], line, line + 2 * column)
        matrix_task(task + UP, up, experts[i], counts[i], line + column, line + 3 * column)
        placed(task + GATE, peek(where + 24 * experts[i]), gate)
        placed(task + UP, peek(where + 24 * experts[i] + 8), up)
        done = counters + COUNTER * j
        poke(done + HAVE, 0)
        poke(done + OF, inner)
        poke(done + READY, 0)
        poke(task + DONE, done)
        poke(task + ORDER_AT, peek(down + ORDER))
        poke(task + OFFSET_AT, peek(down + OFFSET))
        poke(task + RECORDS, line + 4 * column)
        to, behind = items + listed * ITEM, (count - 1 - j) * inner
        listed += share(to, peek(desk + UP_CODE_AT), task, inner, behind, sharing, least, inner, 0)

    # Down, straight to where the GPU looks, each behind its expert's h.
    least = smallest(peek(down + ROW))
    for j in range(count):
        i = picks[j]
        task, line = tasks + EXPERT_TASK * j + DOWN, table + 8 * MOST_ROWS * j
        matrix_task(task, down, experts[i], counts[i], line + 4 * column, line + 5 * column)
        placed(task, peek(where + 24 * experts[i] + 16), down)
        to, behind, ready = items + listed * ITEM, (count - 1 - j) * wide, counters + COUNTER * j + READY
        listed += share(to, peek(down + CODE), task, wide, behind, sharing, least, wide, ready)
    failed = run_all(state, items, listed, shared)
    poke(desk + SERVED_EXPERTS, peek(desk + SERVED_EXPERTS) + count)
    poke(desk + SERVED_PAIRS, peek(desk + SERVED_PAIRS) + pairs)
    poke(desk + SERVED_BYTES, peek(desk + SERVED_BYTES) + count * row_bytes)
    return failed


def _words(matrix: "Stored") -> "ctypes.Array[ctypes.c_int64]":
    """Of a matrix's descriptor."""
    return (ctypes.c_int64 * (WIDTH // 8 + 1)).from_address(matrix.address)


def addresses_of(layers: "Sequence[Expert]") -> NDArray[np.int64]:
    """Where every expert's gate, up and down lie: ``int64 [L, E, 3]``."""
    found = np.empty((len(layers), layers[0].gate.experts, 3), np.int64)
    for to, layer in zip(found, layers, strict=True):
        for i, matrix in enumerate(layer):
            words = _words(matrix)
            to[:, i] = words[ADDRESS // 8] + np.arange(len(to)) * words[EACH // 8]
    return found


class Tables:
    """What `table` makes of the orders that matrices take their rows in, each once; keeps them.

    Args:
        blocks: of a row.
    """

    def __init__(self, blocks: int) -> None:
        self._blocks, self._found = blocks, dict[int, NDArray[np.int32]]()

    def of(self, matrix: "Stored") -> int:
        """Address of a matrix's.

        Raises:
            KernelError: it takes numbers, not rows of eight bits.
        """
        order = _words(matrix)[ORDER // 8]
        if not order:
            raise KernelError("the host computes missing experts of quantised types only, not of float ones")
        if order not in self._found:
            places = np.ctypeslib.as_array((ctypes.c_uint8 * GROUP).from_address(order))
            self._found[order] = table(places, self._blocks)
        return self._found[order].ctypes.data


class Desk:
    """Everything an answer needs, made once: nothing is taken from the system while a window runs.

    Attributes:
        words: ``int64``; see the names above.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        box: NDArray[np.uint8],
        layers: "Sequence[Expert]",
        gate_up: int,
        addresses: NDArray[np.int64] | None,
    ) -> None:
        """Lay it out.

        Args:
            mailbox: how `box` is laid out.
            box: memory shared with the device, ``uint8 [mailbox.nbytes]``.
            layers: types and shapes of each layer's experts, and where they lie unless `addresses` says.
            addresses: ``int64 [L, E, 3]`` of gate, up and down, contiguous; read anew for every message.
            gate_up: address of `strata.experts.compute.steps.gate_up`.
        """
        first, most = layers[0].gate, mailbox.pairs
        hidden, inner = first.k, first.n
        self._box, self._layers = box, layers
        where = addresses_of(layers) if addresses is None else addresses
        facts, tables = np.zeros((len(layers), _FACTS), np.int64), Tables(hidden // 32)
        for to, layer, at in zip(facts, layers, where, strict=True):
            to[:] = [*(m.address for m in layer), at.ctypes.data, tables.of(layer.gate), tables.of(layer.up)]
        groups, inner_groups = -(-hidden // GROUP), -(-inner // GROUP)
        parts = most * (-(-inner // 8) + -(-hidden // 8))
        rooms = {
            GATE_RECORDS: MOST_ROWS * groups * RECORD,
            UP_RECORDS: MOST_ROWS * groups * RECORD,
            DOWN_RECORDS: most * inner_groups * RECORD,
            GATES: 4 * most * inner,
            UPS: 4 * most * inner,
            TABLES: 6 * 8 * MOST_ROWS * most,
            ITEMS: ITEM * parts,
            TASKS: EXPERT_TASK * most,
            COUNTERS: COUNTER * most,
            PICKS: 8 * most,
            ROOM: hidden,
        }
        held = {name: aligned(size) for name, size in rooms.items()}
        for memory in held.values():
            memory[:] = 0
        self.words = aligned(DESK).view(np.int64)
        self.words[:] = 0
        self._kept: tuple[Any, ...] = (facts, held, where, tables)
        at = {BOX: box.ctypes.data, LAYERS: facts.ctypes.data, NUMBER: len(layers), EXPERTS: first.experts}
        at |= {TOPK: mailbox.topk, HIDDEN: hidden, INNER: inner, UP_CODE_AT: gate_up}
        offsets = {
            AT_EXPERTS: mailbox.experts,
            AT_COUNTS: mailbox.counts,
            AT_NUMBERS: mailbox.numbers,
            AT_CODES: mailbox.codes,
            AT_SCALES: mailbox.scales,
            AT_RESULTS: mailbox.results,
        }
        at |= {name: box.ctypes.data + offset for name, offset in offsets.items()}
        at |= {name: memory.ctypes.data for name, memory in held.items()}
        for name, value in at.items():
            self[name] = value

    @property
    def address(self) -> int:
        """Of the words."""
        return self.words.ctypes.data

    def array(self, word: int, count: int) -> NDArray[np.int64]:
        """What a word is the address of, as ``int64 [count]``; a view."""
        return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(self[word]))

    def __getitem__(self, word: int) -> int:
        """A word by its offset in bytes."""
        return int(self.words[word // 8])

    def __setitem__(self, word: int, value: int) -> None:
        """Write one."""
        self.words[word // 8] = value
