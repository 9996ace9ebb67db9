"""Metadata values as bytes: the writing half of the value types (gguf-tensors spec, section 1)."""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from strata.errors import GgufError
from strata.gguf.shown import shown_name
from strata.gguf.values import ARRAY, BOOL, BY_DTYPE, F32, I32, I64, STRING, U32, U64, ValueType

Writable: TypeAlias = bool | int | float | str | np.generic | Sequence[str] | NDArray[Any]

_LARGEST_F32 = float(np.finfo(np.float32).max)


def encode_text(text: str, what: str) -> bytes:
    """u64 length, then UTF-8."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise GgufError(f"{what} cannot be written as UTF-8: {error.reason}") from error
    return struct.pack("<Q", len(raw)) + raw


def encode_metadata(metadata: Mapping[str, Writable]) -> bytes:
    """All entries, in the mapping's order."""
    return b"".join(_encode_entry(key, value) for key, value in metadata.items())


def _encode_entry(key: str, value: Writable) -> bytes:
    what = f"metadata key {shown_name(key)}"
    if not key:
        raise GgufError("a metadata key is empty")
    return encode_text(key, what) + _encode_value(value, what)


def _encode_value(value: Writable, what: str) -> bytes:
    if isinstance(value, str):
        return _id(STRING) + encode_text(value, what)
    if isinstance(value, np.ndarray):
        if value.ndim != 1:
            raise GgufError(f"{what}: an array must have one dimension, not shape {list(value.shape)}")
        kind = _kind_of(value.dtype, what)
        return _id(ARRAY) + _id(kind) + struct.pack("<Q", len(value)) + value.astype(kind.dtype).tobytes()
    if isinstance(value, list | tuple):
        return _encode_texts(value, what)
    kind = _kind_of_scalar(value, what)
    assert kind.dtype is not None
    if isinstance(value, float) and kind is F32 and math.isfinite(value) and abs(value) > _LARGEST_F32:
        raise GgufError(f"{what}: {value} is too large for a float32; pass np.float64 to store a double")
    return _id(kind) + np.asarray(value, dtype=kind.dtype).tobytes()


def _encode_texts(values: Sequence[Any], what: str) -> bytes:
    """A list is an array of strings; an empty one too. Numbers come as NumPy arrays, which say their type."""
    for index, value in enumerate(values):
        if not isinstance(value, str):
            raise GgufError(
                f"{what}: a list must hold strings, but element {index} is a {type(value).__name__}; "
                "pass numbers as a NumPy array of the type to store"
            )
    texts = b"".join(encode_text(value, f"{what}, element {index}") for index, value in enumerate(values))
    return _id(ARRAY) + _id(STRING) + struct.pack("<Q", len(values)) + texts


def _kind_of_scalar(value: object, what: str) -> ValueType:
    if isinstance(value, np.generic):
        return _kind_of(value.dtype, what)
    if isinstance(value, bool):
        return BOOL
    if isinstance(value, float):
        return F32
    if isinstance(value, int):
        # The usual types first; wider ones only for values that need them.
        for kind in (U32, I32, U64, I64):
            limits = np.iinfo(kind.dtype)
            if limits.min <= value <= limits.max:
                return kind
        raise GgufError(f"{what}: {value} does not fit any integer type")
    raise GgufError(f"{what}: a {type(value).__name__} cannot be stored")


def _kind_of(dtype: np.dtype[Any], what: str) -> ValueType:
    kind = BY_DTYPE.get(dtype.newbyteorder("<"))
    if kind is None:
        raise GgufError(f"{what}: NumPy type {dtype} cannot be stored")
    return kind


def _id(kind: ValueType) -> bytes:
    return struct.pack("<I", kind.id)
