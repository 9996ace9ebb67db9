"""A conversation on the device as snapshots take it apart: to memory of the CPU and back, to any slot and pages.

All layers' rows of a kind are gathered on the device, cross the link to where they are kept, and lie there one table
after the other. So they come back in few long copies, and the device puts them into its pages.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from strata.model.config import Mixer
from strata.model.memory import Memory, neighbours, together
from strata.model.parts import Arrived, everything
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
        self._looked: list[tuple[Sequence[str], Tensor]] = []  # which parts are fine, on the device
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

    @property
    def memory(self) -> Memory:
        """The pool's."""
        return self._pool.memory

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
        like = self.like().items()
        found = together(
            self.memory, {name: (row.dtype, (ranges[name][1] - ranges[name][0], *row.shape[1:])) for name, row in like}
        )
        for group in self._tables:
            for pages, row, out, count in _pieces(group, *ranges[group.names[0]]):
                where = group.where(pages)
                here = torch.stack([table.index_select(0, where) for table in group.tables])
                here = here.flatten(1, 2)[:, row : row + count]
                self._look(group.names, here)
                _bring([found[name][out : out + count] for name in group.names], here)
        self._looks()
        return found

    def broken(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """See `Parts.broken`; the device has looked while it copied."""
        return [name for name in tensors if name in self._broken]

    def singles(self) -> dict[str, Tensor]:
        """Copies of what exists for its own boundary only, counters among it."""
        state, pool = self._state, self._pool
        if not state.seat:
            pool.reserve(state, 0)
        counters = torch.tensor([state.length, state.next_position, *pool.history[state.slot].tolist()])
        found = together(self.memory, {name: (one.dtype, one.shape) for name, one in self.single_like().items()})
        found["counters"].copy_(counters)
        self._look(["ngram_tail"], pool.ngram_tails[state.slot][None])
        _bring([found["ngram_tail"]], pool.ngram_tails[state.slot][None])
        for part, kept in (("s", pool.states[state.place]), ("tail", pool.tails[state.slot])):
            names = [f"{name}.{part}" for name in self._recurrent]
            self._look(names, kept)
            _bring([found[name] for name in names], kept)
        for cells, layers in self._attention:
            names = [f"{layer}.ik" for layer in layers]
            left = cells.pool.left(cells)
            self._look(names, left)
            _bring([found[name] for name in names], left)
        if state.mtp is not None:
            self._look(["mtp.residual"], state.mtp.residual[None])
            _bring([found["mtp.residual"]], state.mtp.residual[None])
            found["mtp.pending_ids"] = torch.tensor(state.mtp.pending_ids, dtype=torch.int64)
        self._looks()
        return found

    def single_like(self) -> dict[str, Tensor]:
        """See `Parts.single_like`."""
        pool = self._pool
        found = {"counters": torch.empty(2 + pool.history.shape[1], dtype=torch.int64, device="meta")}
        found["ngram_tail"] = pool.ngram_tails[0].to("meta")
        for part, kept in (("s", pool.states), ("tail", pool.tails)):
            like = kept[0, 0].to("meta") if self._recurrent else None
            found |= {f"{name}.{part}": like for name in self._recurrent if like is not None}
        for cells, layers in self._attention:
            q = cells.pool.config.qsa
            found |= {f"{layer}.ik": torch.empty((q.ratio - 1, q.id), device="meta") for layer in layers}
        if self._state.mtp is not None:
            found["mtp.residual"] = self._state.mtp.residual.to("meta")
        return found

    def put(
        self, rows: Mapping[str, Sequence[Tensor]], singles: Mapping[str, Tensor], arrived: Arrived = everything
    ) -> None:
        """Make a state that has not begun the one whose parts these are, checked by the caller.

        Raises:
            RequestError: the pool is full.
        """
        state, pool = self._state, self._pool
        arrived(singles.keys())
        length, position, *history = (int(x) for x in singles["counters"])
        pool.reserve(state, length)
        if state.mtp is not None:
            state.mtp.cells.pool.reserve(state.mtp.cells, max(0, length - 1))
            state.mtp.residual = torch.empty_like(state.mtp.residual)
            state.mtp.residual.copy_(singles["mtp.residual"], non_blocking=True)
        pool.ngram_tails[state.slot].copy_(singles["ngram_tail"], non_blocking=True)
        pool.history[state.slot].copy_(torch.tensor(history, dtype=torch.int32), non_blocking=True)
        if self._recurrent:
            pool.arrivals.stack(pool.states[state.place], [singles[f"{name}.s"] for name in self._recurrent])
            pool.arrivals.stack(pool.tails[state.slot], [singles[f"{name}.tail"] for name in self._recurrent])
        for cells, layers in self._attention:
            left = torch.empty_like(cells.pool.left(cells))
            pool.arrivals.stack(left, [singles[f"{layer}.ik"] for layer in layers])
            cells.pool.keep(cells, left, length if cells is state else max(0, length - 1))
        for group in self._tables:
            for few in group.cut(sum(part.nbytes for part in rows[group.names[0]])):
                arrived(few.names)
                self._fill(few, [rows[name] for name in few.names])
        self.memory.hold([*singles.values(), *(part for parts in rows.values() for part in parts)])
        state.length, state.next_position = length, position
        if state.mtp is not None:
            state.mtp.cells.length = state.mtp.cells.next_position = max(0, length - 1)

    def _look(self, names: Sequence[str], here: Tensor) -> None:
        """Have the device look which of some parts, one for each row of a tensor there, hold what is no number."""
        if here.numel():
            self._looked.append((names, torch.isfinite(_numbers(here)).flatten(1).all(1)))

    def _looks(self) -> None:
        """Wait for what was copied, and note what was found meanwhile."""
        for names, fine in self._looked:
            self._broken |= {name for name, good in zip(names, fine.tolist(), strict=True) if not good}
        self._looked = []
        if self._pool.states.device.type == "cuda":
            torch.cuda.current_stream(self._pool.states.device).synchronize()

    def _fill(self, group: "_Group", given: Sequence[Sequence[Tensor]]) -> None:
        """Write rows from the first on, of each table in parts; what is behind them on the last page means nothing."""
        per_page = group.tables[0].shape[1]
        pieces = list(_pieces(group, 0, sum(len(part) for part in given[0])))
        laid = ([between(parts, out, out + count) for parts in given] for _, _, out, count in pieces)
        tables = [_wide(table, 1) for table in group.tables]
        for (pages, _, _, _), rows in zip(pieces, self._pool.arrivals.stacked(laid, per_page), strict=True):
            where = group.where(pages)
            for table, part in zip(tables, _wide(rows.unflatten(1, (-1, per_page)), 2), strict=True):
                table.index_copy_(0, where, part)


def _bring(there: Sequence[Tensor], here: Tensor) -> None:
    """Rows of a tensor on the device to as many tensors of the CPU, some time before the device is waited for."""
    whole = neighbours(there) if there else None  # there may be no layer of a kind
    if whole is not None:
        whole.copy_(here, non_blocking=True)
        return
    for one, other in zip(there, here, strict=True):
        one.copy_(other, non_blocking=True)


def _wide(pages: Tensor, dims: int) -> Tensor:
    """Pages, behind so many dimensions, as long numbers, which the device copies faster than short ones."""
    return pages.flatten(dims).view(torch.int64)


def _numbers(here: Tensor) -> Tensor:
    """What says whether rows are finite: themselves, or of blocks in eight bits the scales."""
    return here if here.dtype != KINDS["q8"] else here[..., :4].contiguous().view(torch.float32)


@dataclass(frozen=True, slots=True)
class _Group:
    """Tables of a kind, which have the same rows.

    Attributes:
        names: of the tables.
        tables: [pages, rows of a page, ...] each.
        state: whose they are.
        count: rows it has.
    """

    names: list[str]
    tables: list[Tensor]
    state: GpuState
    count: int

    def cut(self, nbytes: int) -> "Iterator[_Group]":
        """So many tables at a time as fit the staging, if one has so many bytes: the first cross while others come."""
        step = max(1, STAGING // nbytes) if nbytes else len(self.names)
        for i in range(0, len(self.names) if nbytes else 0, step):
            yield replace(self, names=self.names[i : i + step], tables=self.tables[i : i + step])

    def where(self, pages: slice) -> Tensor:
        """Numbers of some of the conversation's pages, int64 on the device."""
        return self.state.pool.table[self.state.slot, pages].long()


def _groups(state: GpuState, layers: Sequence[str]) -> list[_Group]:
    """Keys, values and pooled indexer keys of layers, by kind."""
    pool = state.pool
    whole = [
        _Group([f"{layer}.{kind}" for layer in layers], tables, state, state.length)
        for kind, tables in (("k", pool.keys), ("v", pool.values))
    ]
    pooled = [f"{layer}.blocks" for layer in layers]
    return [*whole, _Group(pooled, pool.blocks, state, state.length // pool.config.qsa.ratio)]


def _pieces(group: _Group, first: int, last: int) -> Iterator[tuple[slice, int, int, int]]:
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
        yield slice(page, -(-end // per_page)), at - page * per_page, at - first, end - at
        at = end
