"""What of a model is in main memory when the CPU computes it, and how the rest is read while it runs."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from strata.errors import StrataError
from strata.gguf import TensorDirectory
from strata.loading import ram
from strata.memory.arena import stacks_of
from strata.memory.arena.filling import HEADROOM, Filling
from strata.memory.budget import least
from strata.memory.budget.plan import Arena
from strata.memory.ngram import Rows, Table, rows_in
from strata.memory.reads import Readers, ReadFile
from strata.memory.tier import ExpertTier, Stock

if TYPE_CHECKING:
    import torch

    from strata.memory.budget import Plan
    from strata.model import ModelConfig
    from strata.model.weights import RowTable, Weights

TABLE = "per_layer_token_embd.weight"

LARGE = 10**9
"""Bytes of an n-gram table from which its rows are read past the system's file cache, if nobody says how."""

OnBytes = Callable[[int], None]


@dataclass(slots=True)
class Storage:
    """What reads while the model runs.

    Attributes:
        tier: of experts, if not all of them are in memory.
        stock: of experts beside a GPU, if not all of those without a slot there are in memory.
        rows: of the n-gram table, unless they are read through the file's own reader.
    """

    tier: ExpertTier | None = None
    stock: Stock | None = None
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
        if self.stock is not None:  # windows say themselves where experts were found
            storage["experts"] = {**asdict(self.stock.stats), "held": self.stock.held, "slots": self.stock.slots}
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
        for part in (self.tier, self.stock, self.rows):
            if part is not None:
                part.close()


def arranged(
    weights: "Weights",
    directory: TensorDirectory,
    c: "ModelConfig",
    made: "Plan",
    ngram: str | None,
    on_bytes: OnBytes | None = None,
) -> tuple["Weights", Storage]:
    """Put experts into a tier if they do not all fit, and rows of the n-gram table where they are to be read.

    The draft head's experts stay where the file is mapped.

    Args:
        weights: as views of the mapped file.
        directory: that file.
        c: dimensions.
        made: who gets how much memory.
        ngram: how rows of the n-gram table are read; None for what suits it.
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

    headroom = min(HEADROOM, made.ram.bytes_of(least.SYSTEM))
    try:
        if made.arena is Arena.PART:
            files = [(file.buffer, ReadFile(file.path)) for file in directory.data_files]
            readers = Readers()
            storage.readers.append(readers)
            moes = [layer.moe for layer in weights.layers]
            layers = [stacks_of([raw(part) for part in (moe.gate, moe.up, moe.down)], files) for moe in moes]
            tier = ExpertTier(layers, readers, shares=shares(made))
            storage.tier = tier
            filled = tier.warm(on_progress=told, available=lambda: ram.measure().available, headroom=headroom)
            before += filled.done
            ready = tuple(
                replace(layer, moe=held(layer.moe, tier, number)) for number, layer in enumerate(weights.layers)
            )
            weights = replace(weights, layers=ready)
        info = directory.tensors.get(TABLE)
        if info is not None and c.ple is not None and (ngram or info.nbytes > LARGE):
            rows = _rows(storage, directory, ngram or "direct", told, headroom)
            weights = _with_table(weights, NgramTable((info.shape[0], info.shape[1]), info.type, rows))
    except BaseException:
        storage.close()
        raise
    return weights, storage


def shares(made: "Plan") -> list[int]:
    """Experts that RAM holds of each layer at first: of each size as many as planned, spread evenly over its layers."""
    found = dict.fromkeys(range(len(made.sizes.layers)), 0)
    for kind in made.classes:
        each, more = divmod(kind.in_ram, len(kind.layers))
        found |= {layer: each + (at < more) for at, layer in enumerate(kind.layers)}
    return list(found.values())


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
        rows = _rows(storage, directory, ngram, None, HEADROOM)
    except BaseException:
        storage.close()
        raise
    return _with_table(weights, HostTable((info.shape[0], info.shape[1]), info.type, rows, device)), storage


def _rows(
    storage: Storage, directory: TensorDirectory, mode: str, told: Callable[[Filling], None] | None, headroom: int
) -> Rows:
    readers = Readers()  # not behind megabytes of experts
    storage.readers.append(readers)
    info = directory.tensors[TABLE]
    file = directory.file(info)
    mapped = None if isinstance(file.mapping, bytes) else (file.buffer, file.mapping)
    table = Table(ReadFile(info.path), info.offset, info.shape[0], info.row_bytes, mapped)
    storage.rows = rows_in(
        mode, table, readers, on_progress=told, available=lambda: ram.measure().available, headroom=headroom
    )
    return storage.rows


def _with_table(weights: "Weights", table: "RowTable") -> "Weights":
    layers = (
        layer if layer.ple is None else replace(layer, ple=replace(layer.ple, table=table)) for layer in weights.layers
    )
    return replace(weights, layers=tuple(layers))


def raw(part: Any) -> Any:
    """The blocks of a matrix of experts.

    Raises:
        StrataError: it has none.
    """
    found = getattr(part, "raw", None)
    if found is None:
        raise StrataError("experts beyond main memory have to be quantised in a type that has a kernel")
    return found
