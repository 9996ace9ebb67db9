"""A conversation on the device as snapshots take it apart: to memory of the CPU and back, to any slot and pages.

All layers' rows of a kind are gathered on the device and travel together, through pinned memory that stays.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from strata.model.config import Mixer
from strata.ops.gpu.pool import GpuState, Pool

STAGING = 64 << 20
"""Bytes that travel at once."""

_KINDS = ("k", "v", "ik", "blocks")


class GpuParts:
    """`strata.model.snapshot.Parts` of a conversation on the device."""

    def __init__(self, state: GpuState) -> None:
        self._state = state
        self._pool = state.pool
        c = self._pool.config
        numbers = [(i, mixer) for i, mixer in enumerate(c.mixers)]
        self._recurrent = [f"layer.{i}" for i, mixer in numbers if mixer is Mixer.GDN]
        self._groups = {kind: [f"layer.{i}.{kind}" for i, mixer in numbers if mixer is Mixer.QSA] for kind in _KINDS}

    @property
    def length(self) -> int:
        """Tokens."""
        return self._state.length

    def counts(self) -> dict[str, int]:
        """Rows of every table."""
        ratio = self._pool.config.qsa.ratio
        return {
            name: self.length // ratio if kind == "blocks" else self.length
            for kind, names in self._groups.items()
            for name in names
        }

    def like(self) -> dict[str, Tensor]:
        """No row of every table, in its shape and type."""
        tables = _tables(self._pool)
        return {
            name: torch.empty((0, *tables[kind][0].shape[2:]), dtype=tables[kind][0].dtype)
            for kind, names in self._groups.items()
            for name in names
        }

    def rows(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
        """Copies of some rows of every table; tables of a kind have the same range."""
        found = {name: rows.new_empty((ranges[name][1] - ranges[name][0], *rows.shape[1:]))
                 for name, rows in self.like().items()}  # fmt: skip
        for kind, names in self._groups.items():
            if not names:
                continue
            first, last = ranges[names[0]]
            tables = _tables(self._pool)[kind]
            for pages, row, out, count in _pieces(tables, self._state.pages, first, last):
                here = torch.stack([table[pages] for table in tables]).flatten(1, 2)[:, row : row + count]
                there = self._pool.staging(here)
                for i, name in enumerate(names):
                    found[name][out : out + count] = there[i]
        return found

    def numbers(self, name: str, rows: Tensor) -> Tensor:  # noqa: ARG002  # every type is one of numbers
        """Rows as numbers."""
        return rows

    def singles(self) -> dict[str, Tensor]:
        """Copies of what exists for its own boundary only, counters among it."""
        state, pool = self._state, self._pool
        if not state.seat:
            pool.reserve(state, 0)
        found = {"counters": torch.tensor([state.length, state.next_position, *pool.history[state.slot].tolist()])}
        found["ngram_tail"] = pool.ngram_tails[state.slot].to("cpu", copy=True)
        for part, kept in (("s", pool.states[state.place]), ("tail", pool.tails[state.slot])):
            there = pool.staging(kept)
            found |= {f"{name}.{part}": there[i].clone() for i, name in enumerate(self._recurrent)}
        return found

    def single_like(self) -> dict[str, Tensor]:
        """See `Parts.single_like`."""
        pool = self._pool
        found = {"counters": torch.empty(2 + pool.history.shape[1], dtype=torch.int64, device="meta")}
        for name in ("ngram_tail", *(f"{name}.{part}" for name in self._recurrent for part in ("s", "tail"))):
            of = (
                pool.ngram_tails[0]
                if name == "ngram_tail"
                else pool.states[0, 0]
                if name[-1] == "s"
                else pool.tails[0, 0]
            )
            found[name] = torch.empty(of.shape, dtype=of.dtype, device="meta")
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
        for kind, names in self._groups.items():
            if not names or not rows[names[0]]:
                continue
            tables, given = _tables(pool)[kind], [torch.cat(tuple(rows[name])) for name in names]
            per_page = tables[0].shape[1]
            for pages, _, out, count in _pieces(tables, state.pages, 0, len(given[0])):
                whole = torch.zeros(
                    (len(tables), len(pages) * per_page, *tables[0].shape[2:]), dtype=tables[0].dtype, device=device
                )
                whole[:, :count] = pool.arrival([one[out : out + count] for one in given])
                for table, part in zip(tables, whole, strict=True):
                    table[pages] = part.unflatten(0, (-1, per_page))
        if self._recurrent:
            pool.states[state.place] = pool.arrival([singles[f"{name}.s"] for name in self._recurrent])
            pool.tails[state.slot] = pool.arrival([singles[f"{name}.tail"] for name in self._recurrent])
        pool.ngram_tails[state.slot] = singles["ngram_tail"].to(device)
        pool.history[state.slot] = torch.tensor(history, dtype=torch.int32, device=device)
        state.length, state.next_position = length, position


def _tables(pool: Pool) -> dict[str, list[Tensor]]:
    return dict(zip(_KINDS, (pool.keys, pool.values, pool.raw, pool.blocks), strict=True))


def _pieces(
    tables: Sequence[Tensor], pages: Sequence[int], first: int, last: int
) -> Iterator[tuple[list[int], int, int, int]]:
    """Rows from `first` to `last` in pieces that fit the staging.

    Returns:
        Of each: pages, the first row within them, the first row of the result, and how many.
    """
    per_page = tables[0].shape[1]
    size = sum(table[0].nbytes for table in tables)
    most = max(1, STAGING // size)
    at = first
    while at < last:
        page = at // per_page
        end = min(last, (page + most) * per_page)
        yield list(pages[page : -(-end // per_page)]), at - page * per_page, at - first, end - at
        at = end
