"""Rows of the n-gram table by every way of reading, for every type it may have (cases M13 and M17)."""

import mmap
import threading

import numpy as np
import pytest

import gguf
from strata.formats import by_name, dequantise
from strata.gguf import TensorData, open_model, write_model
from strata.memory.errors import StorageError
from strata.memory.ngram import MODES, Table, rows_in
from strata.memory.reads import Readers, ReadFile
from support.blocks import random_blocks
from support.faults import Faulty

TYPES = ("F32", "BF16", "F16", "Q8_0", "Q5_1", "IQ4_NL", "Q4_0")
WIDTH, ROWS = 160, 2003


def table_of(kind, folder, *, direct=True, shards=False):
    """A table that starts off a page, with something before and behind it; how to read it, and what it holds."""
    rng = np.random.default_rng(len(kind))
    raw = random_blocks(kind, (ROWS, WIDTH), rng, 0.1) if kind != "F32" else (
        rng.standard_normal((ROWS, WIDTH)).astype(np.float32).view(np.uint8)
    )  # fmt: skip
    name = "per_layer_token_embd.weight"
    data = [
        TensorData("a", (3,), by_name("F32"), np.zeros(12, np.uint8)),
        TensorData(name, (ROWS, WIDTH), by_name(kind), np.asarray(raw, np.uint8).reshape(ROWS, -1)),
        TensorData("z", (5,), by_name("F32"), np.ones(20, np.uint8)),
    ]
    metadata = {"general.architecture": "qwen4exp", "general.name": "x" * 13}
    write_model(folder / "t.gguf", metadata, data, shards=[["a"], [name], ["z"]] if shards else None)
    directory = open_model(min(folder.glob("*.gguf")))
    info = directory.info(name)
    mapped = directory.file(info)
    assert info.offset % 4096
    where = (mapped.buffer, mapped.mapping)
    table = Table(ReadFile(info.path, direct=direct), info.offset, ROWS, info.row_bytes, where)
    return table, np.asarray(directory.raw(name))


def picks():
    """Row numbers at edges: first and last, at the ends of pages, repeated, unsorted; and none."""
    rng = np.random.default_rng(0)
    yield np.array([0])
    yield np.array([ROWS - 1, 0, ROWS - 1, 1, ROWS - 2])
    yield np.empty(0, np.int64)
    yield rng.integers(0, ROWS, 16)
    yield rng.integers(0, ROWS, 3000)
    yield np.arange(ROWS)[::-1]
    yield np.full(40, 77)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", TYPES)
def test_rows_are_the_reference_decoders(kind, mode, tmp_path, readers):
    table, raw = table_of(kind, tmp_path)
    expected = raw.view(np.float32) if kind == "F32" else gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[kind])
    rows = rows_in(mode, table, readers, cached=500)
    size = table.row_bytes
    pages = np.flatnonzero(
        (table.offset + np.arange(ROWS) * size) // 4096 != (table.offset + np.arange(1, ROWS + 1) * size - 1) // 4096
    )
    assert len(pages) > 5
    for numbers in [*picks(), pages, *picks()]:
        found = rows.take(rows.ask(numbers))
        np.testing.assert_array_equal(found, raw[numbers])
        values = dequantise(by_name(kind), found)
        np.testing.assert_array_equal(values, expected[numbers])
    rows.close()


@pytest.mark.parametrize("mode", MODES)
def test_a_table_in_its_own_shard(mode, tmp_path, readers):
    table, raw = table_of("Q8_0", tmp_path, shards=True)
    rows = rows_in(mode, table, readers)
    numbers = np.array([ROWS - 1, 0, 5, ROWS - 1])
    np.testing.assert_array_equal(rows.take(rows.ask(numbers)), raw[numbers])


def test_without_direct_reads_rows_are_the_same(tmp_path, readers):
    table, raw = table_of("IQ4_NL", tmp_path, direct=False)
    assert table.file.block == 1
    rows = rows_in("direct", table, readers, cached=64)
    for numbers in picks():
        np.testing.assert_array_equal(rows.take(rows.ask(numbers)), raw[numbers])


@pytest.mark.parametrize("mode", MODES)
def test_numbers_outside_the_table_are_refused(mode, tmp_path, readers):
    table, _ = table_of("Q8_0", tmp_path)
    rows = rows_in(mode, table, readers)
    for bad in (-1, ROWS, 1 << 62):
        with pytest.raises(StorageError, match=f"rows 0 to {ROWS - 1} can be read"):
            rows.ask(np.array([3, bad]))


def test_kept_rows_are_not_read_again(tmp_path):
    table, raw = table_of("Q8_0", tmp_path)
    faulty = Faulty(lambda _call, _fd, nbytes, _at: nbytes)
    pool = Readers(2, faulty.functions)
    rows = rows_in("direct", table, pool, cached=1000)
    numbers = np.array([5, 900, 5, 1700])
    rows.take(rows.ask(numbers))
    assert faulty.calls == 3
    np.testing.assert_array_equal(rows.take(rows.ask(numbers[::-1])), raw[numbers[::-1]])
    assert faulty.calls == 3
    assert (rows.cache.hits, rows.cache.misses) == (3, 3)
    assert (rows.waits.asked, rows.waits.reads) == (2, 1)
    pool.close()


def test_rows_come_while_others_compute_and_two_may_be_under_way(tmp_path):
    table, raw = table_of("Q8_0", tmp_path)
    gate = threading.Event()
    pool = Readers(2, Faulty(lambda _call, _fd, n, _at: gate.wait() and n).functions)
    rows = rows_in("direct", table, pool, cached=100)
    one, other = rows.ask(np.array([1, 2])), rows.ask(np.array([2, 3]))
    assert not one.ticket.done
    gate.set()
    np.testing.assert_array_equal(rows.take(other), raw[[2, 3]])
    np.testing.assert_array_equal(rows.take(one), raw[[1, 2]])
    np.testing.assert_array_equal(rows.take(one), raw[[1, 2]])
    assert set(rows.cache.holds()) == {1, 2, 3}
    assert rows.waits.asked == 3
    pool.close()


def test_a_failed_read_keeps_nothing(tmp_path):
    table, raw = table_of("Q8_0", tmp_path)
    broken = {"now": True}
    pool = Readers(1, Faulty(lambda _call, _fd, n, _at: -5 if broken["now"] else n).functions)
    rows = rows_in("direct", table, pool)
    with pytest.raises(StorageError, match="Input/output error"):
        rows.take(rows.ask(np.array([4])))
    assert not rows.cache.holds()
    broken["now"] = False
    np.testing.assert_array_equal(rows.take(rows.ask(np.array([4]))), raw[[4]])
    pool.close()


def test_a_file_that_is_not_mapped_has_no_mapped_rows(tmp_path, readers):
    table, _ = table_of("Q8_0", tmp_path)
    with pytest.raises(StorageError, match="not mapped"):
        rows_in("mmap", Table(table.file, table.offset, table.rows, table.row_bytes), readers)


def test_loading_into_memory_can_be_stopped(tmp_path, readers):
    table, _ = table_of("F32", tmp_path)
    stop = threading.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        rows_in("ram", table, readers, stop=stop)


def test_advice_is_given_page_by_page(tmp_path, readers, monkeypatch):
    """The system is told of every page of every row before it is needed, and nothing of thousands of rows."""
    table, _ = table_of("Q5_1", tmp_path)
    said = []

    class Told:
        def madvise(self, advice, first, nbytes):
            said.append((advice, first, nbytes))

    whole, _map = table.mapped
    rows = rows_in("mmap", Table(table.file, table.offset, ROWS, table.row_bytes, (whole, Told())), readers)
    assert said.pop(0)[0] == mmap.MADV_RANDOM
    asked = rows.ask(np.array([7, 7, 1000]))
    assert len(said) == 2
    for (advice, first, nbytes), number in zip(said, (7, 1000), strict=True):
        at = table.offset + number * table.row_bytes
        assert advice == mmap.MADV_WILLNEED
        assert first % 4096 == 0
        assert first <= at < at + table.row_bytes == first + nbytes
    rows.take(asked)
    monkeypatch.setattr("strata.memory.ngram.rows.ADVISED", 1)
    said.clear()
    rows.ask(np.array([7, 1000]))
    assert not said
