"""Experts that are not in memory when the GPU asks: read meanwhile, with the judge's bytes, or told why not."""

import contextlib
import errno
import threading
import time

import numpy as np
import pytest

from strata.experts.kernels.cached import task_function
from strata.experts.misses import HostLoop
from strata.experts.misses import mailbox as box
from strata.experts.pool.region import LOST
from strata.lab import doorbell
from strata.memory.arena import Stack
from strata.memory.reads import Readers, ReadFile, pread
from strata.memory.tier import Stock
from support.faults import Faulty
from support.misses import layers

KINDS, LONG = ("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), 60.0


@pytest.fixture(scope="module")
def made():
    return layers(KINDS, np.random.default_rng(7), experts=8)


@pytest.fixture(scope="module")
def stacks(made, tmp_path_factory):
    """The layers' experts in a file."""
    path, at, places = tmp_path_factory.mktemp("disk") / "experts.bin", 32, []
    with path.open("wb") as file:
        file.write(bytes(at))
        for experts in made.matrices:
            mine = []
            for part in range(3):
                raws = [matrices[part].raw for matrices in experts]
                mine.append((at, raws[0].nbytes, len(raws)))
                for raw in raws:
                    file.write(raw.tobytes())
                at += sum(raw.nbytes for raw in raws)
            places.append(mine)
    source = ReadFile(path)
    return [tuple(Stack(source, at, nbytes, nbytes, count) for at, nbytes, count in mine) for mine in places]


@contextlib.contextmanager
def served(made, stacks, share, decide=None, threads=1, patience=LONG):
    """A loop whose memory has room for a share of the experts."""
    rooms = sum(-(-(part.nbytes + 4095) // 4096) * 4096 for part in stacks[0])
    faulty = Faulty(decide or (lambda _call, _file, n, _at: n))
    pool = Readers(3, faulty.functions)
    count = max(1, round(share * 8 * len(stacks)))
    ones = -(-max(part.nbytes for part in stacks[0]) // 4096) * 4096
    stock = Stock(stacks, pool, ones + count * rooms, patience=patience)
    memory = made.memory()
    loop = HostLoop(made.mailbox, memory, made.stored, (None,) * threads, addresses=stock.addresses, disk=stock)
    loop.start()
    try:
        yield memory, loop, stock
    finally:
        loop.close()
        stock.close()
        pool.close()


def _raise(memory, deck, at):
    m = deck.mailbox
    memory[box.HEADER : m.results] = deck.messages[at]
    words = m.words(memory)
    words[0] += 1
    return int(words[0])


def _await(memory, mailbox, message, seconds=LONG):
    words, end = mailbox.words(memory), time.monotonic() + seconds
    while words[1] < message and time.monotonic() < end:
        time.sleep(1e-4)
    return int(words[1])


@pytest.mark.parametrize(("share", "threads"), [(0.04, 1), (0.4, 2), (1.0, 1)])
def test_rows_are_the_judges_with_any_part_of_the_experts_in_memory(made, stacks, share, threads):
    """Windows begin and end in between, so tables change, too."""
    rng = np.random.default_rng(round(100 * share))
    deck = made.deck(24, rng)
    elsewhere = np.zeros((len(stacks), 8), np.bool_)
    with served(made, stacks, share, threads=threads) as (memory, loop, stock):
        for _ in range(10):
            stock.begin(elsewhere)
            elsewhere = rng.random(elsewhere.shape) < 0.2
            assert doorbell.run(memory, deck, rng.integers(0, 24, 12), patience=LONG)[0] == 0
            stock.seen(np.argwhere(rng.random(elsewhere.shape) < 0.3))
        assert loop.fault() is None
        assert loop.stats().messages == 120
        with stock._lock:
            assert stock._room.held.pinned == len(stock._coming)
        assert stock.stats.misses > 0
        assert stock.stats.read > 0
        if share == 1.0:
            assert stock.held == stock.stats.misses  # each once
            assert stock.stats.hits > 0


@pytest.mark.parametrize("way", ["slow", "short", "interrupted"])
def test_rows_are_the_judges_from_a_disk_on_a_bad_day(made, stacks, way):
    rng = np.random.default_rng(3)

    def decide(call, _file, n, _at):
        if way == "slow":
            time.sleep(float(rng.random() < 0.2) * 0.01)
            return n
        if way == "short":
            return n if call % 3 == 0 else max(4096, n // 3)
        return -errno.EINTR if call % 2 else n

    deck = made.deck(12, rng)
    with served(made, stacks, 0.3, decide) as (memory, loop, stock):
        assert doorbell.run(memory, deck, rng.integers(0, 12, 60), patience=LONG)[0] == 0
        assert loop.fault() is None
        assert stock.stats.misses > 30


def test_what_is_here_is_computed_while_the_rest_is_read(made, stacks):
    """The gate of the disk opens only when the first experts have been computed."""
    deck, gate = made.deck(1, np.random.default_rng(4)), threading.Event()
    experts = np.unique(deck.messages[0, 64:].view(np.int32)[: int(deck.messages[0, 8:12].view(np.int32)[0])])
    layer = int(deck.messages[0, :4].view(np.int32)[0])
    gate.set()
    with served(made, stacks, 1.0, lambda _call, _file, n, _at: gate.wait() and n) as (memory, loop, stock):
        list(stock.visit(layer, experts[:1].astype(np.int64)))
        gate.clear()
        assert len(experts) > 1
        message = _raise(memory, deck, 0)
        end = time.monotonic() + LONG
        while not loop.stats().experts and time.monotonic() < end:
            time.sleep(1e-3)
        assert loop.stats().experts == 1
        assert loop.busy
        assert sorted(e for _, e in stock._coming) == experts[1:].tolist()  # all at once
        gate.set()
        assert _await(memory, made.mailbox, message) == message


def test_a_disk_that_hangs_ends_in_a_report_and_the_next_window_is_right(made, stacks):
    deck, gate = made.deck(2, np.random.default_rng(5)), threading.Event()
    with served(made, stacks, 0.5, lambda _call, _file, n, _at: gate.wait() and n, patience=0.2) as (
        memory,
        loop,
        stock,
    ):
        try:
            assert _await(memory, made.mailbox, _raise(memory, deck, 0)) == box.BROKEN
            fault = loop.fault()
            assert fault.code == box.UNREAD
            assert "experts could not be read from the disk: layer" in str(fault)
            assert "have not come from the disk in" in str(fault)
            assert "experts.bin at byte" in str(fault)
            loop.recover()
            assert loop.fault() is None
        finally:
            gate.set()
        stock._coming.patience = LONG
        assert doorbell.run(memory, deck, np.array([0, 1, 0]), patience=LONG)[0] == 0


def test_a_device_that_gives_up_first_is_told_that_the_disk_is_waited_for(made, stacks):
    deck, gate = made.deck(1, np.random.default_rng(5)), threading.Event()
    with served(made, stacks, 0.5, lambda _call, _file, n, _at: gate.wait() and n) as (memory, loop, _):
        try:
            message = _raise(memory, deck, 0)
            end = time.monotonic() + LONG
            while not loop.busy and time.monotonic() < end:
                time.sleep(1e-3)
            made.mailbox.words(memory)[3] = message
            end = time.monotonic() + LONG
            while "it has been at waiting for the disk for" not in str(loop.fault()) and time.monotonic() < end:
                time.sleep(1e-3)
            assert "it has been at waiting for the disk for" in str(loop.fault())
        finally:
            gate.set()
        loop.recover(LONG)
        assert doorbell.run(memory, deck, np.zeros(2, np.int64), patience=LONG)[0] == 0


def test_a_failing_disk_and_a_dead_reader_are_told_and_the_next_window_is_right(made, stacks, monkeypatch):
    deck, broken = made.deck(2, np.random.default_rng(6)), [True]
    decide = lambda _call, _file, n, _at: -errno.EIO if broken[0] else n  # noqa: E731
    with served(made, stacks, 0.5, decide) as (memory, loop, _):
        assert _await(memory, made.mailbox, _raise(memory, deck, 0)) == box.BROKEN
        assert "experts.bin: reading at byte" in str(loop.fault())
        assert "Input/output error" in str(loop.fault())
        broken[0] = False
        loop.recover()
        runner, left = pread.runner(), [1]

        def dies(*arguments):
            if left[0]:
                left[0] = 0
                raise SystemExit("killed")
            return runner(*arguments)

        monkeypatch.setattr(pread, "runner", lambda: dies)
        assert _await(memory, made.mailbox, _raise(memory, deck, 1)) == box.BROKEN
        assert "experts.bin: a thread failed while it was reading (SystemExit: killed)" in str(loop.fault())
        loop.recover()
        assert doorbell.run(memory, deck, np.array([0, 1, 0, 1]), patience=LONG)[0] == 0


def test_a_worker_that_dies_at_an_expert_that_came_from_the_disk(made, stacks):
    lost = LOST
    die = task_function(lambda task, first, last: lost)  # noqa: ARG005
    deck = made.deck(1, np.random.default_rng(8))
    layer = int(deck.messages[0, :4].view(np.int32)[0])
    with served(made, stacks, 0.5, threads=2) as (memory, loop, stock):
        words = np.ctypeslib.as_array((np.ctypeslib.ctypes.c_int64 * 11).from_address(made.stored[layer].down.address))
        before, words[4] = int(words[4]), die.address
        try:
            assert _await(memory, made.mailbox, _raise(memory, deck, 0)) == box.BROKEN
        finally:
            words[4] = before
        end = time.monotonic() + LONG
        while loop.running and time.monotonic() < end:
            time.sleep(1e-3)
        assert loop.fault().code == box.LOST
        loop.recover()
        assert doorbell.run(memory, deck, np.zeros(2, np.int64), patience=LONG)[0] == 0
        stock.here(0)
        assert stock._room.held.pinned == 0


def test_closing_releases_whoever_waits_for_the_disk(made, stacks):
    deck, gate = made.deck(1, np.random.default_rng(9)), threading.Event()
    with served(made, stacks, 0.5, lambda _call, _file, n, _at: gate.wait() and n) as (memory, loop, _):
        try:
            _raise(memory, deck, 0)
            end = time.monotonic() + LONG
            while not loop.busy and time.monotonic() < end:
                time.sleep(1e-3)
            loop.close()
            assert _await(memory, made.mailbox, 1 << 61) == box.BROKEN
            assert not loop.running
        finally:
            gate.set()
