"""A conversation on the device as snapshots take it apart: to memory of the CPU and back, to any slot and pages.

All layers' rows of a kind are gathered on the device and travel together, through pinned memory that stays.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from strata.model.config import Mixer
from strata.ops.gpu.arrivals import between
from strata.ops.gpu.pool import KINDS, GpuState

STAGING = 64 << 20
"""Bytes that travel at once."""


class GpuParts:
    """`strata.model.snapshot.Parts` of a conversation on the device."""

    def __init__(self, state: GpuState) -> None:
        self._state = state
        self._pool = state.pool
        self._broken: set[str] = set()
        numbers = list(enumerate(self._pool.config.mixers))
        self._recurrent = [f"layer.{i}" for i, mixer in numbers if mixer is Mixer.GDN]
        attention = [f"layer.{i}" for i, mixer in numbers if mixer is Mixer.QSA]
        self._attention = [(state, attention)] if attention else []
        if state.mtp is not None:
            self._attention.append((state.mtp.cells, ["mtp"]))
        self._tables = [group for cells, layers in self._attention for group in _groups(cells, layers)]

    @property
    def length(self) -> int:
        """Tokens."""
        return self._state.length

    def counts(self) -> dict[str, int]:
        """Rows of every table."""
        return {name: group.count for group in self._tables for name in group.names}

    def like(self) -> dict[str, Tensor]:
        """No row of every table, in its shape and type."""
        return {
            name: torch.empty((0, *group.tables[0].shape[2:]), dtype=group.tables[0].dtype)
            for group in self._tables
            for name in group.names
        }

    def rows(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
        """Copies of some rows of every table; tables of a kind have the same range."""
        found = {
            name: rows.new_empty((ranges[name][1] - ranges[name][0], *rows.shape[1:]))
            for name, rows in self.like().items()
        }
        for group in self._tables:
            for pages, row, out, count in _pieces(group, *ranges[group.names[0]]):
                here = torch.stack([table[pages] for table in group.tables]).flatten(1, 2)[:, row : row + count]
                self._look(group.names, here)
                there = self._pool.staging(here)
                for i, name in enumerate(group.names):
                    found[name][out : out + count] = there[i]
        return found

    def broken(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """See `Parts.broken`; the device has looked while it copied."""
        return [name for name in tensors if name in self._broken]

    def singles(self) -> dict[str, Tensor]:
        """Copies of what exists for its own boundary only, counters among it."""
        state, pool = self._state, self._pool
        if not state.seat:
            pool.reserve(state, 0)
        found = {"counters": torch.tensor([state.length, state.next_position, *pool.history[state.slot].tolist()])}
        self._look(["ngram_tail"], pool.ngram_tails[state.slot][None])
        found["ngram_tail"] = pool.ngram_tails[state.slot].to("cpu", copy=True)
        for part, kept in (("s", pool.states[state.place]), ("tail", pool.tails[state.slot])):
            self._look([f"{name}.{part}" for name in self._recurrent], kept)
            there = pool.staging(kept)
            found |= {f"{name}.{part}": there[i].clone() for i, name in enumerate(self._recurrent)}
        for cells, layers in self._attention:
            kept, names = cells.pool.left(cells), [f"{layer}.ik" for layer in layers]
            self._look(names, kept)
            found |= dict(zip(names, kept.to("cpu").unbind(), strict=True))
        if state.mtp is not None:
            self._look(["mtp.residual"], state.mtp.residual[None])
            found["mtp.residual"] = state.mtp.residual.to("cpu", copy=True)
            found["mtp.pending_ids"] = torch.tensor(state.mtp.pending_ids, dtype=torch.int64)
        return found

    def single_like(self) -> dict[str, Tensor]:
        """See `Parts.single_like`."""
        pool = self._pool
        found = {"counters": torch.empty(2 + pool.history.shape[1], dtype=torch.int64, device="meta")}
        found["ngram_tail"] = pool.ngram_tails[0].to("meta")
        for name in self._recurrent:
            found |= {f"{name}.s": pool.states[0, 0].to("meta"), f"{name}.tail": pool.tails[0, 0].to("meta")}
        for cells, layers in self._attention:
            q = cells.pool.config.qsa
            found |= {f"{layer}.ik": torch.empty((q.ratio - 1, q.id), device="meta") for layer in layers}
        if self._state.mtp is not None:
            found["mtp.residual"] = self._state.mtp.residual.to("meta")
        return found

    def put(self, rows: Mapping[str, Sequence[Tensor]], singles: Mapping[str, Tensor]) -> None:
        """Make a state that has not begun the one whose parts these are, checked by the caller.

        Raises:
            RequestError: the pool is full.
        """
        state, pool = self._state, self._pool
        length, position, *history = (int(x) for x in singles["counters"])
        pool.reserve(state, length)
        device = pool.states.device
        if state.mtp is not None:
            state.mtp.cells.pool.reserve(state.mtp.cells, max(0, length - 1))
        for group in self._tables:
            if rows[group.names[0]]:
                self._fill(group, [rows[name] for name in group.names])
        if self._recurrent:
            pool.states[state.place] = pool.arrival([singles[f"{name}.s"] for name in self._recurrent])
            pool.tails[state.slot] = pool.arrival([singles[f"{name}.tail"] for name in self._recurrent])
        pool.ngram_tails[state.slot] = singles["ngram_tail"].to(device)
        pool.history[state.slot] = torch.tensor(history, dtype=torch.int32, device=device)
        for cells, layers in self._attention:
            end = length if cells is state else max(0, length - 1)
            cells.pool.keep(cells, cells.pool.arrival([singles[f"{layer}.ik"] for layer in layers]), end)
        state.length, state.next_position = length, position
        if state.mtp is not None:
            state.mtp.cells.length = state.mtp.cells.next_position = max(0, length - 1)
            state.mtp.residual = singles["mtp.residual"].to(device, copy=True)

    def _look(self, names: Sequence[str], here: Tensor) -> None:
        """Note which of some parts, one for each row of a tensor on the device, hold what is no number."""
        if here.numel():
            fine = torch.isfinite(_numbers(here)).flatten(1).all(1).tolist()
            self._broken |= {name for name, good in zip(names, fine, strict=True) if not good}

    def _fill(self, group: "_Group", given: Sequence[Sequence[Tensor]]) -> None:
        """Write rows from the first on, of each table in parts; what is behind them on the last page means nothing."""
        per_page, like = group.tables[0].shape[1], group.tables[0]
        pieces = list(_pieces(group, 0, sum(len(part) for part in given[0])))
        laid = ([between(parts, out, out + count) for parts in given] for _, _, out, count in pieces)
        for (pages, _, _, count), rows in zip(pieces, self._pool.arrivals.stacked(laid), strict=True):
            whole = like.new_zeros((len(group.tables), len(pages) * per_page, *like.shape[2:]))
            whole[:, :count] = rows
            where = torch.tensor(pages, device=like.device)
            for table, part in zip(group.tables, whole, strict=True):
                table.index_copy_(0, where, part.unflatten(0, (-1, per_page)))


def _numbers(here: Tensor) -> Tensor:
    """What says whether rows are finite: themselves, or of blocks in eight bits the scales."""
    return here if here.dtype != KINDS["q8"] else here[..., :4].contiguous().view(torch.float32)


@dataclass(frozen=True, slots=True)
class _Group:
    """Tables of a kind, which have the same rows.

    Attributes:
        names: of the tables.
        tables: [pages, rows of a page, ...] each.
        pages: of the conversation.
        count: rows it has.
    """

    names: list[str]
    tables: list[Tensor]
    pages: list[int]
    count: int


def _groups(state: GpuState, layers: Sequence[str]) -> list[_Group]:
    """Keys, values and pooled indexer keys of layers, by kind."""
    pool = state.pool
    whole = [
        _Group([f"{layer}.{kind}" for layer in layers], tables, state.pages, state.length)
        for kind, tables in (("k", pool.keys), ("v", pool.values))
    ]
    pooled = [f"{layer}.blocks" for layer in layers]
    return [*whole, _Group(pooled, pool.blocks, state.pages, state.length // pool.config.qsa.ratio)]


def _pieces(group: _Group, first: int, last: int) -> Iterator[tuple[list[int], int, int, int]]:
    """Rows from `first` to `last` in pieces that fit the staging.

    Returns:
        Of each: pages, the first row within them, the first row of the result, and how many.
    """
    per_page = group.tables[0].shape[1]
    size = sum(table[0].nbytes for table in group.tables)
    most = max(1, STAGING // size)
    at = first
    while at < last:
        page = at // per_page
        end = min(last, (page + most) * per_page)
        yield list(group.pages[page : -(-end // per_page)]), at - page * per_page, at - first, end - at
        at = end
