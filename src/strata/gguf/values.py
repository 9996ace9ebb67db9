"""The value types a GGUF file's metadata can hold (gguf-tensors spec, section 1)."""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Scalar: TypeAlias = int | float | bool | str
Value: TypeAlias = Scalar | list[str] | NDArray[Any]


@dataclass(frozen=True, slots=True)
class ValueType:
    """One value type: its id in the file, its usual short name, and how NumPy stores one element.

    ``dtype`` is None for strings and arrays, whose elements have no fixed size.
    """

    id: int
    name: str
    dtype: np.dtype[Any] | None

    @property
    def integer(self) -> bool:
        """One of the eight integer types; a boolean is none of them."""
        return self.dtype is not None and self.dtype.kind in "iu"

    @property
    def real(self) -> bool:
        """float32 or float64."""
        return self.dtype is not None and self.dtype.kind == "f"


BOOL = ValueType(7, "bool", np.dtype(np.bool_))
STRING = ValueType(8, "string", None)
ARRAY = ValueType(9, "array", None)
U16 = ValueType(2, "u16", np.dtype("<u2"))
U32 = ValueType(4, "u32", np.dtype("<u4"))
I32 = ValueType(5, "i32", np.dtype("<i4"))
F32 = ValueType(6, "f32", np.dtype("<f4"))
U64 = ValueType(10, "u64", np.dtype("<u8"))
I64 = ValueType(11, "i64", np.dtype("<i8"))

VALUE_TYPES: tuple[ValueType, ...] = (
    ValueType(0, "u8", np.dtype("u1")),
    ValueType(1, "i8", np.dtype("i1")),
    U16,
    ValueType(3, "i16", np.dtype("<i2")),
    U32,
    I32,
    F32,
    BOOL,
    STRING,
    ARRAY,
    U64,
    I64,
    ValueType(12, "f64", np.dtype("<f8")),
)
BY_ID = {value_type.id: value_type for value_type in VALUE_TYPES}
BY_DTYPE = {value_type.dtype: value_type for value_type in VALUE_TYPES if value_type.dtype is not None}
