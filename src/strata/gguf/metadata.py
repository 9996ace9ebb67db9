"""The key/value part of a GGUF file: a mapping whose values are decoded when asked for."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from strata.errors import GgufError
from strata.gguf.cursor import Cursor
from strata.gguf.datafile import DataFile
from strata.gguf.shown import shown_name
from strata.gguf.values import ARRAY, BOOL, BY_ID, STRING, Value, ValueType

_FEWEST_BYTES = 8 + 1 + 4 + 1  # of one entry: key length, a key of one letter, value type, a one-byte value


class MissingKeyError(GgufError, KeyError):
    """A metadata key is not in the file. Also a KeyError, as a mapping promises."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one value lies. ``count`` is None for a single value, else the length of an array of ``type``."""

    type: ValueType
    offset: int
    count: int | None

    @property
    def kind(self) -> str:
        """``"u32"``, or ``"string[248320]"`` for an array."""
        return self.type.name if self.count is None else f"{self.type.name}[{self.count}]"


class Metadata(Mapping[str, Value]):
    """Keys of one file in file order, with values as Python and NumPy objects.

    Integers, floats, booleans and strings come as Python's own; string arrays as ``list[str]``; number arrays as
    read-only NumPy arrays of the stored type. A value is decoded at its first use and kept, so treat lists as
    read-only too. The typed accessors accept any integer type where an integer is meant, and name file, key, the
    type found and the type expected when they refuse.
    """

    def __init__(self, file: DataFile, entries: Mapping[str, Entry]) -> None:
        self._file = file
        self._entries = entries
        self._values: dict[str, Value] = {}

    def __getitem__(self, key: str) -> Value:
        if key not in self._values:
            self._values[key] = self._decode(key, self._entry(key))
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Metadata({str(self._file)!r}, {len(self)} keys)"

    def kind(self, key: str) -> str:
        """The stored type, e.g. ``"u64"`` or ``"string[248320]"``, without decoding the value."""
        return self._entry(key).kind

    def integer(self, key: str, default: int | None = None) -> int:
        """One integer, stored in any integer type. Without a default a missing key is an error."""
        if default is not None and key not in self:
            return default
        self._expect(key, "an integer", single=True, good=self._entry(key).type.integer)
        return self[key]  # type: ignore[return-value]  # checked by the line above

    def real(self, key: str, default: float | None = None) -> float:
        """One number, stored as a float or an integer of any type."""
        if default is not None and key not in self:
            return default
        found = self._entry(key).type
        self._expect(key, "a number", single=True, good=found.real or found.integer)
        return float(self[key])  # type: ignore[arg-type]

    def boolean(self, key: str, default: bool | None = None) -> bool:
        """One boolean."""
        if default is not None and key not in self:
            return default
        self._expect(key, "a boolean", single=True, good=self._entry(key).type is BOOL)
        return self[key]  # type: ignore[return-value]

    def string(self, key: str, default: str | None = None) -> str:
        """One string."""
        if default is not None and key not in self:
            return default
        self._expect(key, "a string", single=True, good=self._entry(key).type is STRING)
        return self[key]  # type: ignore[return-value]

    def integers(self, key: str, count: int | None = None) -> tuple[int, ...]:
        """An array of integers of any integer type, as Python integers; ``count`` is the length it must have."""
        self._expect(key, "an array of integers", single=False, good=self._entry(key).type.integer)
        self._expect_count(key, count)
        return tuple(self[key].tolist())  # type: ignore[union-attr]

    def reals(self, key: str, count: int | None = None) -> tuple[float, ...]:
        """An array of numbers, floats or integers, as Python floats."""
        found = self._entry(key).type
        self._expect(key, "an array of numbers", single=False, good=found.real or found.integer)
        self._expect_count(key, count)
        return tuple(self[key].astype(np.float64).tolist())  # type: ignore[union-attr]

    def strings(self, key: str, count: int | None = None) -> list[str]:
        """An array of strings; the list is shared, do not change it."""
        self._expect(key, "an array of strings", single=False, good=self._entry(key).type is STRING)
        self._expect_count(key, count)
        return self[key]  # type: ignore[return-value]

    def _entry(self, key: str) -> Entry:
        try:
            return self._entries[key]
        except KeyError:
            raise MissingKeyError(f"{self._file}: metadata key {shown_name(key)} is missing") from None

    def _expect(self, key: str, expected: str, *, single: bool, good: bool) -> None:
        entry = self._entry(key)
        if not good or (entry.count is None) != single:
            raise GgufError(
                f"{self._file}: metadata key {shown_name(key)} must be {expected}, but it is stored as {entry.kind}"
            )

    def _expect_count(self, key: str, count: int | None) -> None:
        found = self._entry(key).count
        if count is not None and found != count:
            raise GgufError(
                f"{self._file}: metadata key {shown_name(key)} must have {count} elements, but it has {found}"
            )

    def _decode(self, key: str, entry: Entry) -> Value:
        cursor = Cursor(self._file, entry.offset)
        what = f"the value of metadata key {shown_name(key)}"
        if entry.type is STRING:
            return cursor.text(what) if entry.count is None else cursor.texts(entry.count, what)
        numbers = self._numbers(entry)
        if entry.type is BOOL:
            self._check_booleans(numbers.view(np.uint8), what)
        if entry.count is None:
            return numbers.item()  # type: ignore[no-any-return]  # one element: a Python int, float or bool
        numbers.flags.writeable = False
        return numbers

    def _numbers(self, entry: Entry) -> NDArray[Any]:
        """A copy: the file gives no alignment, and a view would keep the whole mapping alive."""
        assert entry.type.dtype is not None
        end = entry.offset + (1 if entry.count is None else entry.count) * entry.type.dtype.itemsize
        return self._file.buffer[entry.offset : end].copy().view(entry.type.dtype)

    def _check_booleans(self, raw: NDArray[np.uint8], what: str) -> None:
        if raw.size and raw.max() > 1:
            raise GgufError(f"{self._file}: {what} must be 0 or 1, the only booleans, but holds {raw.max()}")


def read_metadata(cursor: Cursor, count: int) -> Metadata:
    """Pass ``count`` entries and note where their values lie; nothing but keys is decoded."""
    cursor.claim(count, _FEWEST_BYTES, "the number of metadata keys")
    entries: dict[str, Entry] = {}
    for index in range(count):
        key = cursor.text(f"metadata key {index}")
        if not key:
            cursor.fail(f"metadata key {index} is empty")
        if key in entries:
            cursor.fail(f"metadata key {shown_name(key)} appears twice")
        entries[key] = _read_entry(cursor, key)
    return Metadata(cursor.file, entries)


def _read_entry(cursor: Cursor, key: str) -> Entry:
    what = f"metadata key {shown_name(key)}"
    value_type = _value_type(cursor, what)
    count = None
    if value_type is ARRAY:
        value_type = _value_type(cursor, f"{what}, elements")
        count = cursor.u64(f"the length of {what}")
        if value_type is ARRAY:
            cursor.fail(f"{what} is an array of arrays, which no known model uses; expected an array of plain values")
    entry = Entry(value_type, cursor.position, count)
    if value_type.dtype is not None:
        cursor.skip((1 if count is None else count) * value_type.dtype.itemsize, f"{what} ({entry.kind})")
    elif count is None:
        cursor.skip(cursor.u64(f"the length of {what}"), f"{what} (a string)")
    else:
        cursor.skip_texts(count, what)
    return entry


def _value_type(cursor: Cursor, what: str) -> ValueType:
    number = cursor.u32(f"the value type of {what}")
    value_type = BY_ID.get(number)
    if value_type is None:
        cursor.fail(f"{what} has the unknown value type {number}; known are 0 to {max(BY_ID)}")
    return value_type
