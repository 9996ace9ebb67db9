"""The host's half: the judge's rows, thousands of layers at full speed, and every fault releases whoever waits."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from strata.errors import TierError
from strata.experts.errors import KernelError
from strata.experts.kernels.cached import task_function
from strata.experts.misses import HostLoop, Mailbox, answer
from strata.experts.misses import mailbox as box
from strata.experts.pool.atomics import load, pause
from strata.experts.pool.region import LOST
from strata.lab import doorbell
from support.misses import layers

MIXES = [
    ("IQ3_XXS", "IQ3_XXS", "IQ4_NL"),  # as in the public files
    ("Q4_K", "IQ2_S", "Q5_1"),  # gate and up in other orders, minimums
    ("NVFP4", "NVFP4", "NVFP4"),  # a scale per expert
]
LONG = 60.0


@pytest.fixture
def made():
    return layers(MIXES[0], np.random.default_rng(7))


def _await(memory, mailbox, message, seconds=LONG):
    """As a device would: until the answer is there, or nobody will answer."""
    words, end = mailbox.words(memory), time.monotonic() + seconds
    while words[1] < message and time.monotonic() < end:
        time.sleep(1e-4)
    return int(words[1])


def _raise(memory, deck, at):
    """Raise a message without waiting; returns its number."""
    m = deck.mailbox
    memory[box.HEADER : m.results] = deck.messages[at]
    words = m.words(memory)
    words[0] += 1
    return int(words[0])


def _ended(loop):
    """Wait until it runs no more."""
    end = time.monotonic() + LONG
    while loop.running and time.monotonic() < end:
        time.sleep(1e-3)


def _deadly():
    """A task's function that ends the thread that runs it."""

    def die(task, first, last):  # noqa: ARG001
        return lost

    lost = LOST
    return task_function(die)


def _swap_up(loop, code):
    """Let the loop's gates and ups be another function's."""
    loop._desk[answer.UP_CODE_AT] = code


def _swap_down(made, layer, code):
    """Let another function compute a layer's down matrices; returns what to put back."""
    descriptor = made.stored[layer].down
    words = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 11).from_address(descriptor.address))
    before = int(words[4])
    words[4] = code
    return words, before


@pytest.mark.parametrize(
    ("mix", "threads", "rounds"), [(MIXES[0], 1, 10_000), (MIXES[1], 2, 300), (MIXES[2], 1, 300)], ids=str
)
def test_thousands_of_layers_come_back_with_the_judges_bytes(mix, threads, rounds):
    """Random layers, rows and misses, against a device that never pauses."""
    rng = np.random.default_rng([*mix[0].encode()])
    made = layers(mix, rng)
    deck, memory = made.deck(48, rng), made.memory()
    loop = made.loop(memory, threads)
    try:
        wrong, times = doorbell.run(memory, deck, rng.integers(0, 48, rounds), patience=LONG)
        assert wrong == 0
        assert loop.fault() is None
        assert loop.stats().messages == len(times)
    finally:
        loop.close()


def test_experts_that_lie_anywhere(made):
    """Addresses of single experts, as an arena has them, instead of one array a layer."""
    rng = np.random.default_rng(3)
    kept, addresses = [], np.zeros((len(made.stored), 6, 3), np.int64)
    for layer, experts in enumerate(made.matrices):
        for e, parts in enumerate(experts):
            for i, part in enumerate(parts):
                kept.append(part.raw.copy())
                addresses[layer, e, i] = kept[-1].ctypes.data
    deck, memory = made.deck(8, rng), made.memory()
    loop = HostLoop(made.mailbox, memory, made.stored, addresses=addresses)
    loop.start()
    try:
        assert doorbell.run(memory, deck, np.arange(8), patience=LONG)[0] == 0
    finally:
        loop.close()


def test_an_idle_loop_sleeps_and_a_ring_wakes_it(made):
    deck, memory = made.deck(1, np.random.default_rng(1)), made.memory()
    loop = made.loop(memory, spin=0.01)
    try:
        assert doorbell.run(memory, deck, np.zeros(3, np.int64), patience=LONG)[0] == 0
        time.sleep(0.1)
        slept, before = loop.stats().sleeps, time.process_time()
        time.sleep(0.5)
        assert loop.stats().sleeps > slept
        assert time.process_time() - before < 0.1
        loop.ring()
        assert doorbell.run(memory, deck, np.zeros(3, np.int64), patience=LONG)[0] == 0
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("word", "value"),
    [(box.LAYER, 3), (box.LAYER, -1), (box.ROWS, 0), (box.ROWS, 9), (box.COUNT, 0), (box.COUNT, 99)],
)
def test_a_poisoned_header_is_refused_and_the_next_message_is_right(made, word, value):
    rng = np.random.default_rng(5)
    deck, memory = made.deck(2, rng), made.memory()
    deck.messages[0, :16].view(np.int32)[word] = value
    loop = made.loop(memory)
    try:
        message = _raise(memory, deck, 0)
        assert _await(memory, made.mailbox, message) == box.BROKEN
        fault = loop.fault()
        assert fault.code == box.BAD_MESSAGE
        assert "makes no sense" in str(fault)
        loop.recover()
        assert loop.fault() is None
        assert doorbell.run(memory, deck, np.ones(5, np.int64), patience=LONG)[0] == 0
    finally:
        loop.close()


@pytest.mark.parametrize("part", ["experts", "counts", "numbers"])
def test_a_poisoned_list_is_refused(made, part):
    deck, memory = made.deck(1, np.random.default_rng(5)), made.memory()
    at = getattr(made.mailbox, part) - box.HEADER
    deck.messages[0, at : at + 4].view(np.int32)[0] = 1 << 20
    loop = made.loop(memory)
    try:
        assert _await(memory, made.mailbox, _raise(memory, deck, 0)) == box.BROKEN
        assert loop.fault().code == box.BAD_MESSAGE
    finally:
        loop.close()


@pytest.mark.parametrize("threads", [1, 3])
def test_a_worker_that_dies_is_told_and_replaced(made, threads):
    rng = np.random.default_rng(11)
    deck, memory = made.deck(24, rng), made.memory()

    code = _deadly()
    loop = made.loop(memory, threads)
    try:
        at = next(i for i in range(24) if deck.messages[i, :4].view(np.int32)[0] == 1)
        words, before = _swap_down(made, 1, code.address)
        message = _raise(memory, deck, at)
        assert _await(memory, made.mailbox, message) == box.BROKEN
        words[4] = before
        _ended(loop)
        fault = loop.fault()
        assert (fault.code, fault.layer) == (box.LOST, 1)
        assert "a worker thread ended in the middle of its work: layer 1, experts" in str(fault)
        loop.recover()
        assert doorbell.run(memory, deck, np.arange(24), patience=LONG)[0] == 0
    finally:
        loop.close()


@pytest.mark.parametrize("threads", [2, 4])
def test_a_worker_that_dies_before_h_is_there_holds_nobody(made, threads):
    """Others wait for that h in the same list, the loop's own thread among them."""
    rng = np.random.default_rng(13)
    deck, memory = made.deck(24, rng), made.memory()

    code = _deadly()
    loop = made.loop(memory, threads)
    try:
        before = loop._desk[answer.UP_CODE_AT]
        for at in range(8):
            _swap_up(loop, code.address)
            message = _raise(memory, deck, at)
            assert _await(memory, made.mailbox, message) == box.BROKEN
            _ended(loop)
            assert loop.fault().code == box.LOST
            _swap_up(loop, before)
            loop.recover()
        assert doorbell.run(memory, deck, np.arange(24), patience=LONG)[0] == 0
    finally:
        loop.close()


def test_a_worker_that_stalls_is_named_and_nothing_goes_on_beside_it(made):
    """The device gives up first; the host comes back whenever the worker does."""
    rng = np.random.default_rng(12)
    deck, memory = made.deck(24, rng), made.memory()
    gate = np.zeros(1, np.int64)
    at_gate = gate.ctypes.data

    def stall(task, first, last):  # noqa: ARG001
        while load(at_gate) == 0:
            pause()
        return 0

    code = task_function(stall)
    loop = made.loop(memory, 2)
    try:
        at = next(i for i in range(24) if deck.messages[i, :4].view(np.int32)[0] == 2)
        words, before = _swap_down(made, 2, code.address)
        message = _raise(memory, deck, at)
        assert _await(memory, made.mailbox, message, 0.3) < message
        made.mailbox.words(memory)[3] = message  # what the device writes when its patience ends
        fault = loop.fault()
        assert "did not answer in time: layer 2, experts" in str(fault)
        assert "it has been at computing for" in str(fault)
        with pytest.raises(TierError, match="still at an earlier window"):
            loop.recover(0.05)
        words[4] = before
        gate[0] = 1
        loop.recover(LONG)
        assert loop.fault() is None
        assert doorbell.run(memory, deck, np.arange(24), patience=LONG)[0] == 0
    finally:
        gate[0] = 1
        loop.close()


def test_a_loop_that_never_began_and_one_that_ended(made):
    deck, memory = made.deck(2, np.random.default_rng(1)), made.memory()
    loop = HostLoop(made.mailbox, memory, made.stored)
    assert not loop.running
    wrong, _ = doorbell.run(memory, deck, np.zeros(1, np.int64), patience=0.05)
    assert wrong == doorbell.TIMED_OUT
    made.mailbox.words(memory)[3] = 1
    assert "the host loop is not running" in str(loop.fault())
    loop.recover()  # starts it
    try:
        assert doorbell.run(memory, deck, np.arange(2), patience=LONG)[0] == 0
        loop._desk[loop_stop()] = 1  # ends for no reason anybody gave
        assert _await(memory, made.mailbox, 1 << 61) == box.BROKEN
        fault = loop.fault()
        assert fault.code == box.ENDED
        assert "the host loop is not running (it was stopped)" in str(fault)
        loop.recover()
        assert doorbell.run(memory, deck, np.arange(2), patience=LONG)[0] == 0
    finally:
        loop.close()


def loop_stop():
    from strata.experts.misses import answer

    return answer.STOP


def test_closing_releases_whoever_waits(made):
    gate = np.zeros(1, np.int64)
    at_gate = gate.ctypes.data

    def stall(task, first, last):  # noqa: ARG001
        while load(at_gate) == 0:
            pause()
        return 0

    code = task_function(stall)
    deck, memory = made.deck(1, np.random.default_rng(1)), made.memory()
    loop = made.loop(memory)
    words, before = _swap_down(made, int(deck.messages[0, :4].view(np.int32)[0]), code.address)
    _raise(memory, deck, 0)
    end = time.monotonic() + LONG
    while not loop.busy and time.monotonic() < end:
        time.sleep(1e-3)
    closing = threading.Thread(target=loop.close)
    closing.start()
    assert _await(memory, made.mailbox, 1 << 61) == box.BROKEN
    words[4] = before
    gate[0] = 1
    closing.join(LONG)
    assert not closing.is_alive()
    assert not loop.running


def test_shapes_that_do_not_fit_are_refused(made):
    with pytest.raises(KernelError, match="one shape and width 512"):
        HostLoop(Mailbox(2, 512), np.zeros(Mailbox(2, 512).nbytes, np.uint8), made.stored)


def test_reading_of_addresses_is_the_layout_of_a_descriptor(made):
    from strata.experts.misses.answer import addresses_of

    found = addresses_of(made.stored)
    for layer, stored in enumerate(made.stored):
        for i, matrix in enumerate(stored):
            assert found[layer, 0, i] == peek_of(matrix.address)
    assert (np.diff(found[:, :, 0], axis=1) == made.stored[0].gate.nbytes).all()


def peek_of(address):
    return int(np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 1).from_address(address))[0])


LEFT = """
import numpy as np
from support.misses import layers
made = layers(("Q8_0",) * 3, np.random.default_rng(1), hidden=64, inner=32)
memory = made.memory()
loop = made.loop(memory, {threads})
from strata.lab import doorbell
deck = made.deck(1, np.random.default_rng(1))
print(doorbell.run(memory, deck, np.zeros(2, np.int64))[0])
"""


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_ends_though_nobody_closed_its_loop(threads):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", LEFT.format(threads=threads)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LONG, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
