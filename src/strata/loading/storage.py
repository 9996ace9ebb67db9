"""What of a model is in main memory when the CPU computes it, and how the rest is read while it runs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING, Any

from strata.errors import StrataError
from strata.gguf import TensorDirectory
from strata.loading import ram
from strata.loading.shown import shown_bytes
from strata.loading.stored import is_expert
from strata.memory.arena import stacks_of
from strata.memory.arena.filling import HEADROOM, Filling
from strata.memory.ngram import Rows, Table, rows_in
from strata.memory.reads import Readers, ReadFile
from strata.memory.tier import ExpertTier

if TYPE_CHECKING:
    import torch

    from strata.model import ModelConfig
    from strata.model.weights import RowTable, Weights

TABLE = "per_layer_token_embd.weight"

LARGE = 10**9
"""Bytes of an n-gram table from which its rows are read past the system's file cache, if nobody says how."""

LEAST = 8
"""Experts of a layer's size that have to fit, or all that a row visits."""

OnBytes = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Division:
    """How main memory is divided.

    Attributes:
        dense: bytes that are there all the time.
        experts: bytes of all routed experts.
        slots: bytes for those that are held; None if all of them are, as the file stores them.
        table: bytes of the n-gram table, if it is in memory.
    """

    dense: int
    experts: int
    slots: int | None
    table: int = 0

    def __str__(self) -> str:
        if self.slots is None:
            return ""
        return f"{shown_bytes(self.slots)} for {shown_bytes(self.experts)} of experts, the others read from the file"


def divide(
    directory: TensorDirectory, c: "ModelConfig", weights: int, there: ram.Ram, most: int | None, ngram: str | None
) -> Division:
    """Divide what there is.

    Args:
        directory: the file's tensors.
        c: dimensions.
        weights: bytes of all weights in memory, tables not counted.
        there: the machine's memory.
        most: what weights may take; None for what is available.
        ngram: how rows of the table are read.

    Raises:
        StrataError: it does not fit; says what would.
    """
    experts = sum(info.nbytes for name, info in directory.tensors.items() if is_expert(name) and _used(name, c))
    table = directory.tensors[TABLE].nbytes if ngram == "ram" and TABLE in directory.tensors else 0
    dense = weights - experts
    if weights + table <= min(there.available, there.available if most is None else most):
        return Division(dense, experts, None, table)
    left = there.available - HEADROOM
    left = (left if most is None else min(most, left)) - dense - table
    least = _least(directory, c)
    if left < least and most is None:
        ram.check(weights + table, there)
    if left < least:
        raise StrataError(
            f"{shown_bytes(most or 0)} of main memory were allowed for weights (--ram), and "
            f"{shown_bytes(there.available)} are available, of which {shown_bytes(HEADROOM)} stay free; this model "
            f"needs {shown_bytes(dense + table)} all the time and {shown_bytes(least)} for the experts of one row: at "
            f"least --ram {_rounded(dense + table + least)}"
        )
    return Division(dense, experts, left, table)


def _least(directory: TensorDirectory, c: "ModelConfig") -> int:
    """Bytes for the fewest experts, room for their shifts included."""
    sizes: dict[str, int] = {}
    for name, info in directory.tensors.items():
        if is_expert(name) and _used(name, c):
            layer = name.split(".")[1]
            sizes[layer] = sizes.get(layer, 0) + info.nbytes // prod(info.shape[:1]) + 3 * 8192
    return sum(set(sizes.values())) * max(LEAST, c.moe.topk) + max(sizes.values(), default=0)


def _used(name: str, c: "ModelConfig") -> bool:
    return int(name.split(".")[1]) < c.L + (1 if c.mtp else 0)


def _rounded(nbytes: int) -> str:
    """Megabytes, rounded up, as the setting takes them."""
    return f"{-(-nbytes // 10**6)}MB"


@dataclass(slots=True)
class Storage:
    """What reads while the model runs.

    Attributes:
        tier: of experts, if not all of them are in memory.
        rows: of the n-gram table, unless they are read through the file's own reader.
    """

    tier: ExpertTier | None = None
    rows: Rows | None = None
    readers: list[Readers] = field(default_factory=list)

    def stats(self) -> dict[str, Any]:
        """Counters by name: `storage`, and where visited experts were found (`strata.engine.totals`)."""
        found: dict[str, Any] = {}
        storage: dict[str, Any] = {}
        if self.tier is not None:
            met = self.tier.stats
            found["experts"] = {"vram": 0, "ram": met.hits, "ssd": met.misses}
            storage["experts"] = {**asdict(met), "held": self.tier.held.held, "slots": self.tier.slots}
        if self.rows is not None:
            storage["ngram"] = asdict(self.rows.waits)
            cache = getattr(self.rows, "cache", None)
            if cache is not None:
                storage["ngram"] |= {"hits": cache.hits, "misses": cache.misses}
        return found | ({"storage": storage} if storage else {})

    def end(self) -> None:
        """End the reading threads; whoever computes again starts them again."""
        for readers in self.readers:
            readers.close()

    def close(self) -> None:
        """As `end`, and give memory back. Nobody may compute any more."""
        self.end()
        for part in (self.tier, self.rows):
            if part is not None:
                part.close()


def arranged(
    weights: "Weights",
    directory: TensorDirectory,
    c: "ModelConfig",
    division: Division,
    ngram: str | None,
    on_bytes: OnBytes | None = None,
) -> tuple["Weights", Storage]:
    """Put experts into a tier if they do not all fit, and rows of the n-gram table where they are to be read.

    Args:
        weights: as views of the mapped file.
        directory: that file.
        c: dimensions.
        division: of memory.
        ngram: how rows of the table are read; None for what suits it.
        on_bytes: called with the bytes read so far.

    Raises:
        StorageError: the disk failed, or memory ran short; nothing is left behind.
    """
    from strata.ops.moe.held import held
    from strata.ops.ngram.table import NgramTable

    storage = Storage()
    before = 0

    def told(done: Filling) -> None:
        if on_bytes:
            on_bytes(before + done.done)

    try:
        if division.slots is not None:
            files = [(file.buffer, ReadFile(file.path)) for file in directory.data_files]
            readers = Readers()
            storage.readers.append(readers)
            moes = [layer.moe for layer in weights.layers]
            if weights.mtp is not None:
                moes.append(weights.mtp.layer.moe)
            layers = [stacks_of([_raw(part) for part in (moe.gate, moe.up, moe.down)], files) for moe in moes]
            tier = ExpertTier(layers, readers, division.slots, least=max(LEAST, c.moe.topk))
            storage.tier = tier
            before += tier.warm(on_progress=told, available=lambda: ram.measure().available).done
            ready = [held(moe, tier, number) for number, moe in enumerate(moes)]
            trunk = tuple(replace(layer, moe=moe) for layer, moe in zip(weights.layers, ready, strict=False))
            mtp = weights.mtp and replace(weights.mtp, layer=replace(weights.mtp.layer, moe=ready[-1]))
            weights = replace(weights, layers=trunk, mtp=mtp)
        info = directory.tensors.get(TABLE)
        if info is not None and c.ple is not None and (ngram or info.nbytes > LARGE):
            rows = _rows(storage, directory, ngram or "direct", told)
            weights = _with_table(weights, NgramTable((info.shape[0], info.shape[1]), info.type, rows))
    except BaseException:
        storage.close()
        raise
    return weights, storage


def hosted(
    weights: "Weights", directory: TensorDirectory, ngram: str, device: "torch.device"
) -> tuple["Weights", Storage]:
    """Leave the n-gram table in main memory or on the disk, for a model on a GPU.

    Args:
        weights: as views of the mapped file.
        directory: that file.
        ngram: how rows of the table are read.
        device: where they are needed.
    """
    from strata.ops.ngram.host import HostTable

    storage, info = Storage(), directory.tensors.get(TABLE)
    if info is None:
        return weights, storage
    try:
        rows = _rows(storage, directory, ngram, None)
    except BaseException:
        storage.close()
        raise
    return _with_table(weights, HostTable((info.shape[0], info.shape[1]), info.type, rows, device)), storage


def _rows(storage: Storage, directory: TensorDirectory, mode: str, told: Callable[[Filling], None] | None) -> Rows:
    readers = Readers()  # not behind megabytes of experts
    storage.readers.append(readers)
    info = directory.tensors[TABLE]
    file = directory.file(info)
    mapped = None if isinstance(file.mapping, bytes) else (file.buffer, file.mapping)
    table = Table(ReadFile(info.path), info.offset, info.shape[0], info.row_bytes, mapped)
    storage.rows = rows_in(mode, table, readers, on_progress=told, available=lambda: ram.measure().available)
    return storage.rows


def _with_table(weights: "Weights", table: "RowTable") -> "Weights":
    layers = (
        layer if layer.ple is None else replace(layer, ple=replace(layer.ple, table=table)) for layer in weights.layers
    )
    return replace(weights, layers=tuple(layers))


def _raw(part: Any) -> Any:
    raw = getattr(part, "raw", None)
    if raw is None:
        raise StrataError("experts beyond main memory have to be quantised in a type that has a kernel")
    return raw


def beside(weights: "Weights") -> bool:
    """Whether the n-gram table of a model on a GPU is not there."""
    from strata.ops.ngram.host import HostTable

    return any(layer.ple is not None and isinstance(layer.ple.table, HostTable) for layer in weights.layers)
