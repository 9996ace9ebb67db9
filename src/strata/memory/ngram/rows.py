"""Reading rows of a table: asked for when their numbers are known, taken when they are needed."""

import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from strata.memory.arena.filling import HEADROOM, Filling, fill
from strata.memory.arena.region import Region
from strata.memory.errors import StorageError
from strata.memory.ngram.cache import RowCache
from strata.memory.reads import Item, Readers, ReadFile, Ticket

MODES = ("ram", "mmap", "direct")
"""Ways to read: all of it in memory, through the system's file cache, or row by row past it."""

CACHED = 1 << 20
"""Rows that are kept in memory when they are read directly: 94 MB of the released table."""

ADVISED = 4096
"""Most rows for which the system is told before that they will be needed: a call each."""

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Table:
    """Where a table lies.

    Attributes:
        file: that holds it.
        offset: its first byte there.
        rows: how many.
        row_bytes: bytes of each; they follow one another.
        mapped: the whole file, uint8, and the map it is a view of, for reading through the system's cache.
    """

    file: ReadFile
    offset: int
    rows: int
    row_bytes: int
    mapped: tuple[U8, mmap.mmap] | None = None

    def check(self, numbers: I64) -> I64:
        """The numbers as contiguous int64.

        Raises:
            StorageError: one is outside the table.
        """
        found = np.ascontiguousarray(numbers, np.int64)
        if found.ndim != 1 or (found.size and (found.min() < 0 or found.max() >= self.rows)):
            raise StorageError(f"rows 0 to {self.rows - 1} can be read, not {found.min()} to {found.max()}")
        return found


@dataclass(slots=True)
class Waits:
    """How long rows were waited for.

    Attributes:
        asked: calls.
        waited: of them those whose rows were not there yet.
        seconds: of waiting, together.
        longest: of these.
        reading: seconds from asking to the last row's arrival, of calls that read anything.
        reads: how many did.
    """

    asked: int = 0
    waited: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    reading: float = 0.0
    reads: int = 0

    def note(self, ticket: Ticket | None, waited: float) -> None:
        """Count a call."""
        self.asked += 1
        self.waited += waited > 0
        self.seconds += waited
        self.longest = max(self.longest, waited)
        if ticket is not None and len(ticket):
            self.reads += 1
            self.reading += ticket.ended - ticket.began


@dataclass(slots=True, eq=False)
class Asked:
    """Rows on their way.

    Attributes:
        numbers: of the different rows, rising.
        back: which of them each wanted row is.
        rows: uint8 [different rows, row_bytes], being written.
        fresh: which of them are read.
        ticket: of these reads; None if there are none.
    """

    numbers: I64
    back: I64
    rows: U8
    fresh: I64 = field(default_factory=lambda: np.empty(0, np.int64))
    ticket: Ticket | None = None


class Rows(Protocol):
    """A table's rows, by one of the ways to read.

    Attributes:
        waits: how long they were waited for.
    """

    waits: Waits

    def ask(self, numbers: I64) -> Asked:
        """Begin to fetch rows; they may repeat and come in any order.

        Raises:
            StorageError: a number is outside the table.
        """
        ...

    def take(self, asked: Asked) -> U8:
        """The rows asked for, uint8 [n, row_bytes], when all are there.

        Raises:
            StorageError: the disk failed.
        """
        ...

    def close(self) -> None:
        """Give memory back."""
        ...


def rows_in(
    mode: str,
    table: Table,
    readers: Readers,
    *,
    cached: int = CACHED,
    on_progress: Callable[[Filling], None] | None = None,
    stop: Event | None = None,
    available: Callable[[], int] | None = None,
    headroom: int = HEADROOM,
) -> Rows:
    """A table's rows.

    Args:
        mode: of `MODES`.
        table: where they lie.
        readers: who reads.
        cached: rows that are kept, for "direct".
        on_progress: for "ram", as for `strata.memory.arena.filling.fill`.
        stop: likewise.
        available: likewise.
        headroom: likewise.
    """
    if mode == "direct":
        return DirectRows(table, readers, cached)
    if mode == "mmap":
        return MappedRows(table)
    region = Region(table.rows * table.row_bytes)
    item = Item(table.file, table.offset, len(region), region.address)
    fill(
        region, _pieces(item), readers, total=len(region), on_progress=on_progress, stop=stop, available=available,
        headroom=headroom,
    )  # fmt: skip
    return HeldRows(table, region)


class HeldRows:
    """All rows in memory."""

    def __init__(self, table: Table, region: Region) -> None:
        self._table = table
        self._region = region
        self._rows: U8 = region.array.reshape(table.rows, table.row_bytes)
        self.waits = Waits()

    def ask(self, numbers: I64) -> Asked:
        """See `Rows.ask`; they are here."""
        numbers = self._table.check(numbers)
        return Asked(numbers, numbers, self._rows)

    def take(self, asked: Asked) -> U8:
        """See `Rows.take`."""
        self.waits.note(None, 0.0)
        found: U8 = asked.rows[asked.back]
        return found

    def close(self) -> None:
        """See `Rows.close`."""
        self._region.give_back()


class MappedRows:
    """Rows through the system's file cache; asking tells the system which pages will be needed."""

    def __init__(self, table: Table) -> None:
        if table.mapped is None:
            raise StorageError(f"{table.file.path}: is not mapped into memory; read its rows directly (--ngram direct)")
        self._table = table
        whole, self._map = table.mapped
        nbytes = table.rows * table.row_bytes
        self._rows: U8 = whole[table.offset : table.offset + nbytes].reshape(table.rows, table.row_bytes)
        self._advise(mmap.MADV_RANDOM, table.offset, nbytes)  # or the system reads 128 KB around each row
        self.waits = Waits()

    def ask(self, numbers: I64) -> Asked:
        """See `Rows.ask`."""
        numbers, back = np.unique(self._table.check(numbers), return_inverse=True)
        if len(numbers) <= ADVISED:
            size = self._table.row_bytes
            for at in (self._table.offset + numbers * size).tolist():
                self._advise(mmap.MADV_WILLNEED, at, size)
        return Asked(numbers, back, self._rows)

    def take(self, asked: Asked) -> U8:
        """See `Rows.take`. What is not there yet is waited for page by page, and counted as waiting."""
        began = time.perf_counter()
        found: U8 = self._rows[asked.numbers][asked.back]
        self.waits.note(None, time.perf_counter() - began)
        return found

    def close(self) -> None:
        """See `Rows.close`; the map is the file's."""

    def _advise(self, advice: int, at: int, nbytes: int) -> None:
        first = at // mmap.PAGESIZE * mmap.PAGESIZE
        self._map.madvise(advice, first, at + nbytes - first)


class DirectRows:
    """Rows read one by one past the system's cache, and a bounded number of them kept.

    A row on its way belongs to whoever asked: it is written into memory of that call alone and is kept when it is
    taken. So a cache entry is always whole, whatever the disk does meanwhile.
    """

    def __init__(self, table: Table, readers: Readers, cached: int = CACHED) -> None:
        self._table = table
        self._readers = readers
        self.cache = RowCache(min(cached, table.rows))
        self._kept: U8 = np.empty((len(self.cache), table.row_bytes), np.uint8)
        self.waits = Waits()

    def ask(self, numbers: I64) -> Asked:
        """See `Rows.ask`."""
        table = self._table
        numbers, back = np.unique(table.check(numbers), return_inverse=True)
        rows = np.empty((len(numbers), table.row_bytes), np.uint8)
        places = self.cache.find(numbers)
        here = np.flatnonzero(places >= 0)
        rows[here] = self._kept[places[here]]
        fresh = np.flatnonzero(places < 0)
        asked = Asked(numbers, back, rows, fresh)
        if len(fresh):
            offsets = table.offset + numbers[fresh] * table.row_bytes
            targets = rows.ctypes.data + fresh * table.row_bytes
            asked.ticket = self._readers.submit_rows(table.file, offsets, table.row_bytes, targets, rows)
        return asked

    def take(self, asked: Asked) -> U8:
        """See `Rows.take`."""
        waited, ticket = 0.0, asked.ticket
        if ticket is not None:
            if not ticket.done:
                began = time.perf_counter()
                ticket.wait()
                waited = time.perf_counter() - began
            ticket.wait()
            if len(asked.fresh):
                new = asked.numbers[asked.fresh]
                places = self.cache.place(new)
                self._kept[places] = asked.rows[asked.fresh]
                asked.fresh = asked.fresh[:0]
        self.waits.note(ticket, waited)
        found: U8 = asked.rows[asked.back]
        return found

    def close(self) -> None:
        """See `Rows.close`."""
        self.cache = RowCache(0)
        self._kept = self._kept[: len(self.cache)].copy()


def _pieces(item: Item) -> list[Item]:
    """A long read in pieces of a batch, so that it can be stopped between them."""
    step = 16 << 20
    return [
        item._replace(offset=item.offset + at, nbytes=min(step, item.nbytes - at), to=item.to + at)
        for at in range(0, item.nbytes, step)
    ]
