"""GGUF files for tests: a byte-level builder that shares no code with the reader or the writer, and small whole models.

The builder follows gguf-tensors spec section 1 and notes where every count and length stands, so that a test can make
each of them lie.
"""

import random
import struct
import time
import tracemalloc
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from strata.errors import StrataError
from strata.formats import TYPES, by_name, dequantise
from strata.gguf import TensorData, find_bad_blocks, find_holes, open_model, write_model

FORMATS = {
    "u8": (0, "<B"),
    "i8": (1, "<b"),
    "u16": (2, "<H"),
    "i16": (3, "<h"),
    "u32": (4, "<I"),
    "i32": (5, "<i"),
    "f32": (6, "<f"),
    "bool": (7, "<?"),
    "u64": (10, "<Q"),
    "i64": (11, "<q"),
    "f64": (12, "<d"),
}
STRING, ARRAY = 8, 9
F32, F16, Q8_0, Q2_0 = 0, 1, 8, 42  # type ids


@dataclass(frozen=True)
class Field:
    """A number in the header: what it says, where it stands, how it is packed."""

    name: str
    position: int
    format: str


@dataclass(frozen=True)
class Tensor:
    """One line of the table and its data. ``ne`` is in file order; ``offset`` None puts it after the one before."""

    name: str
    ne: Sequence[int]
    type_id: int
    data: bytes
    offset: int | None = None


@dataclass
class Builder:
    """Collects bytes and the fields among them."""

    data: bytearray = field(default_factory=bytearray)
    fields: list[Field] = field(default_factory=list)

    def number(self, name: str, fmt: str, value: int) -> None:
        self.fields.append(Field(name, len(self.data), fmt))
        self.data += struct.pack(fmt, value)

    def text(self, name: str, value: str | bytes) -> None:
        raw = value if isinstance(value, bytes) else value.encode()
        self.number(f"length of {name}", "<Q", len(raw))
        self.data += raw

    def entry(self, key: str | bytes, kind: str, value) -> None:
        """``kind`` is a name of FORMATS or "string", with "[]" for an array."""
        self.text(f"key {key!r}", key)
        scalar = kind.removesuffix("[]")
        type_id = STRING if scalar == "string" else FORMATS[scalar][0]
        if kind.endswith("[]"):
            self.number(f"type of {key!r}", "<I", ARRAY)
        self.number(f"element type of {key!r}", "<I", type_id)
        if kind.endswith("[]"):
            self.number(f"count of {key!r}", "<Q", len(value))
        for item in value if kind.endswith("[]") else [value]:
            if scalar == "string":
                self.text(f"string of {key!r}", item)
            else:
                self.data += struct.pack(FORMATS[scalar][1], item)

    def tensor(self, tensor: Tensor, offset: int) -> None:
        self.text(f"tensor {tensor.name!r}", tensor.name)
        self.number(f"dimensions of {tensor.name!r}", "<I", len(tensor.ne))
        for index, length in enumerate(tensor.ne):
            self.number(f"ne[{index}] of {tensor.name!r}", "<Q", length)
        self.number(f"type of tensor {tensor.name!r}", "<I", tensor.type_id)
        self.number(f"offset of {tensor.name!r}", "<Q", offset)


def build(
    entries: Iterable[tuple],
    tensors: Sequence[Tensor] = (),
    *,
    alignment: int = 32,
    version: int = 3,
    magic: bytes = b"GGUF",
    pad_last: bool = True,
) -> Builder:
    """A whole file in memory; ``alignment`` is used, but only declared if ``entries`` does so."""
    entries = list(entries)
    out = Builder(bytearray(magic))
    out.number("version", "<I", version)
    out.number("number of tensors", "<Q", len(tensors))
    out.number("number of keys", "<Q", len(entries))
    for entry in entries:
        out.entry(*entry)
    body = bytearray()
    for tensor in tensors:
        offset = len(body) if tensor.offset is None else tensor.offset
        out.tensor(tensor, offset)
        body += tensor.data
        if pad_last or tensor is not tensors[-1]:
            body += bytes(-len(body) % alignment)
    if tensors or pad_last:
        out.data += bytes(-len(out.data) % alignment)
    out.data += body
    return out


def lie(built: Builder, name: str, value: int) -> bytes:
    """The file with one field replaced; negative values are stored as two's complement."""
    (target,) = [item for item in built.fields if item.name == name]
    data = bytearray(built.data)
    struct.pack_into(target.format, data, target.position, value % (1 << 8 * struct.calcsize(target.format)))
    return bytes(data)


# Entries of every value type, arrays of every element type.
SAMPLE_ENTRIES = [
    ("general.architecture", "string", "qwen4exp"),
    ("general.name", "string", "näme 漢字"),
    *((f"one.{kind}", kind, value) for kind, value in [
        ("u8", 200), ("i8", -100), ("u16", 60000), ("i16", -30000), ("u32", 4_000_000_000), ("i32", -2_000_000_000),
        ("f32", 0.5), ("bool", True), ("u64", 2**64 - 1), ("i64", -(2**63)), ("f64", 1e300)]),
    *((f"many.{kind}", f"{kind}[]", values) for kind, values in [
        ("u8", [1, 255]), ("i8", [-1]), ("u16", [1, 2, 3]), ("i16", [-5]), ("u32", [7] * 5), ("i32", [11, 11, 10, 0]),
        ("f32", [0.25, -0.5]), ("bool", [True, False]), ("u64", [23703573157769, 2**64 - 1]), ("i64", [-1, 2**40]),
        ("f64", [1e-300])]),
    ("many.string", "string[]", ["", "a", "Ġé", "<|im_end|>"]),
    ("none.u32", "u32[]", []),
    ("none.string", "string[]", []),
]  # fmt: skip


def sample_tensors() -> list[Tensor]:
    """Tensors of one to three dimensions in four types, with values that are easy to say."""
    q8 = np.float16(0.5).tobytes() + np.arange(-16, 16, dtype=np.int8).tobytes()
    q2 = np.float16(2.0).tobytes() + bytes([0b11100100] * 16)  # codes 0, 1, 2, 3: weights -2, 0, 2, 4
    return [
        Tensor("norm.weight", [5], F32, np.arange(5, dtype=np.float32).tobytes()),
        Tensor("matrix.weight", [3, 4], F16, np.arange(12, dtype=np.float16).tobytes()),
        Tensor("experts.weight", [32, 2, 3], Q8_0, q8 * 6),
        Tensor("two.weight", [192, 24], Q2_0, q2 * 3 * 24),
    ]


def sample() -> Builder:
    """A valid file with all of that."""
    return build(SAMPLE_ENTRIES, sample_tensors())


def tiny_model(path: Path, *, shards: Sequence[Sequence[str]] | None = None, **metadata) -> tuple[Path, ...]:
    """Write a small valid model through the writer: three matrices of different types, one vector."""
    rng = np.random.default_rng(0)
    tensors = [
        TensorData.quantised(name, rng.standard_normal(shape, np.float32), by_name(kind))
        for name, shape, kind in [
            ("token_embd.weight", (16, 64), "Q8_0"),
            ("blk.0.ffn_gate_exps.weight", (4, 8, 64), "Q8_0"),
            ("blk.0.ffn_up_exps.weight", (4, 8, 64), "F16"),
            ("output_norm.weight", (64,), "F32"),
        ]
    ]
    keys = {"general.architecture": "qwen4exp", "tokenizer.ggml.tokens": ["a", "b", "Ġc"]}
    return write_model(path, keys | metadata, tensors, shards=shards)


# What reading everything in a small damaged file may cost. The largest honest product is the float32 weights of a
# type of little more than one bit: 4 bytes * 8 bits / 1.125 bits = 28 for each byte of file; they exist twice while
# rows are gathered from them. The constant is for error texts and the like. Call `warm_up` before measuring: some
# modules and decoders' tables come to life at first use.
MEMORY_FACTOR = 64
MEMORY_CONSTANT = 65536
SECONDS = 2.0

Edit = tuple[str, int, bytes]
"""("set" | "insert" | "delete" | "cut", position as a fraction of 2**32, bytes)"""


def edited(data: bytes, edits: Iterable[Edit]) -> bytes:
    """Apply edits one after another; "delete" removes as many bytes as given, "cut" all from the position on."""
    out = bytearray(data)
    for kind, place, payload in edits:
        at = place * (len(out) + 1) >> 32
        if kind == "set":
            out[at : at + len(payload)] = payload
        elif kind == "insert":
            out[at:at] = payload
        elif kind == "delete":
            del out[at : at + len(payload)]
        else:
            del out[at:]
    return bytes(out)


def random_edits(rng: random.Random) -> list[Edit]:
    """One to four edits: bytes, or the numbers that break careless readers."""
    numbers = [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, 2**40, 65536]

    def payload() -> bytes:
        if rng.random() < 0.5:
            return rng.randbytes(rng.choice([1, 1, 1, 2, 4, 8]))
        return struct.pack("<Q", rng.choice(numbers))[: rng.choice([4, 8])]

    kinds = ["set"] * 12 + ["insert", "delete", "cut"]
    return [(rng.choice(kinds), rng.getrandbits(32), payload()) for _ in range(rng.randint(1, 4))]


def warm_up(folder: Path) -> None:
    """Bring to life whatever is made at first use."""
    path = folder / "warm.gguf"
    path.write_bytes(sample().data)
    assert read_everything(path) == "read"
    for kind in TYPES:
        dequantise(kind, np.zeros((1, kind.bytes), np.uint8))
    path.write_bytes(sample().data[:-100])
    assert read_everything(path) == "GgufError"
    path.unlink()


def read_everything(path: Path) -> str:
    """Open a file, decode all its metadata, load all its tensors; "read", or the name of the room that refused."""
    problem = None
    try:
        model = open_model(path)
        for key in model.metadata:
            model.metadata[key]
        for name, info in model.tensors.items():
            assert model.load(name).shape == info.shape
            if len(info.shape) == 2:
                model.rows(name, [info.shape[0] - 1, 0, 0])
        find_bad_blocks(model)
        find_holes(model)
    except StrataError as error:
        problem = error
    assert problem is None or path.name.split("-")[0] in str(problem)  # the file, or another of its set
    return "read" if problem is None else type(problem).__name__


def watched(path: Path) -> tuple[float, int]:
    """Seconds and most bytes of memory that reading everything in a file takes; other threads' are counted, too."""
    tracemalloc.start()
    try:
        start = time.perf_counter()
        read_everything(path)
        return time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
