"""What stored conversations must have in common with the running engine to be of use to it (case K17)."""

import sys
import warnings
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from strata.errors import StrataError
from strata.formats import BlockType
from strata.model.snapshot import parts_of

if TYPE_CHECKING:
    from strata.model import Network

STATES = 1
"""Rises with every change to what a state holds or to the bytes that the same tokens compute to."""

WHOLE = 64 << 20
"""Weights up to this many bytes are hashed whole; of more, the first, middle and last of each tensor."""

SAMPLE = 16 << 10

ROWS = 4096
"""Rows of a table that is read row by row, evenly spaced; all of a smaller one."""


def fingerprint(network: "Network", extra: str = "") -> str:
    """A text that differs where a stored state would be of no use: another model, setting, or order of operations.

    Covers the dimensions with their rope scaling, weights, drafts, the types of the tables, the form of state and
    numerics. Of large weights a sample is hashed, since reading 60 GB would take a minute; `extra` should then say
    which file they come from.
    """
    digest = blake2b(digest_size=16)

    def add(name: str, value: object) -> None:
        digest.update(f"{name}={value!r}\n".encode())

    add("states", STATES)
    add("byte order", sys.byteorder)
    add("config", replace(network.config, context=0))  # how much a conversation may hold changes no byte of it
    add("drafts", network.drafts)
    add("mtp", network.mtp)
    add("form", network.ops.form)
    add("tables", [(name, str(row.dtype)) for name, row in parts_of(network.new_state()).like().items()])
    add("extra", extra)
    arrays = list(_arrays(network.weights))
    whole = sum(array.nbytes for array in arrays) <= WHOLE
    samples = [list(_samples(array, whole=whole)) for array in arrays]
    there = _brought([part for parts in samples for part in parts])
    for array, parts in zip(arrays, samples, strict=True):
        add("array", (str(array.dtype), tuple(array.shape)))
        for _ in parts:
            digest.update(next(there).numpy().data)
    return digest.hexdigest()


def _samples(array: Tensor, *, whole: bool) -> Iterator[Tensor]:
    """What is hashed of an array, uint8, where it lies."""
    raw = array.reshape(-1).view(torch.uint8)
    if whole:
        yield raw
        return
    for first in (0, len(raw) // 2, max(0, len(raw) - SAMPLE)):
        yield raw[first : first + SAMPLE]


def _brought(parts: list[Tensor]) -> Iterator[Tensor]:
    """The same on the CPU, in order. What lies elsewhere comes in one copy: each waits for the device."""
    far = [part for part in parts if part.device.type != "cpu"]
    come = iter(torch.cat(far).cpu().split([len(part) for part in far]) if far else ())
    return (part if part.device.type == "cpu" else next(come) for part in parts)


def _arrays(value: Any) -> Iterator[Tensor]:
    """Every number within the weights, in the order of the fields, where it lies."""
    if isinstance(value, Tensor):
        yield value.detach().contiguous()
    elif isinstance(value, BlockType):
        yield from _arrays(value.name)
    elif isinstance(value, np.ndarray):
        with warnings.catch_warnings():  # mapped files cannot be written, and nobody will
            warnings.simplefilter("ignore", UserWarning)
            yield torch.from_numpy(np.ascontiguousarray(value))
    elif hasattr(value, "rows") and hasattr(value, "shape") and callable(value.rows):
        count = value.shape[0]
        chosen = range(count) if count <= ROWS else [i * (count - 1) // (ROWS - 1) for i in range(ROWS)]
        yield from _arrays(value.rows(list(chosen)))
    elif is_dataclass(value):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _arrays(part)
    elif value is None or isinstance(value, str | bytes | int | float | Enum):
        yield torch.frombuffer(bytearray(repr(value).encode()), dtype=torch.uint8)
    else:
        raise StrataError(f"no fingerprint can be taken of weights that contain a {type(value).__name__}")
