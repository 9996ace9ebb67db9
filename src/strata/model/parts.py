"""A state as snapshots see it: tables of rows that grow, and what exists for one boundary only."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from strata.errors import StrataError
from strata.model.memory import PLAIN, Memory
from strata.model.rows import Rows
from strata.model.state import GdnState, QsaState, State

COUNTERS = "counters"

Arrived = Callable[[Collection[str]], None]
"""Returns when the tensors of some names are there, in all parts that have them; raises if one never will be."""


def everything(names: Collection[str]) -> None:
    """All tensors are there."""


UNSETTLED = frozenset({"mtp.pending", "mtp.pending_ids"})
"""What only a state that is not settled holds."""


class Parts(Protocol):
    """A state of some device, taken apart to memory of the CPU and put together again."""

    @property
    def length(self) -> int:
        """Tokens."""
        ...

    @property
    def memory(self) -> Memory:
        """Where copies of it best lie."""
        ...

    def counts(self) -> Mapping[str, int]:
        """Rows of every table, by name."""
        ...

    def like(self) -> Mapping[str, Tensor]:
        """No row of every table, in its shape and type."""
        ...

    def rows(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
        """Copies of some rows of every table, as they are stored."""
        ...

    def broken(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """Names of those tensors, rows or singles just copied, in which a number is not finite."""
        ...

    def singles(self) -> dict[str, Tensor]:
        """Copies of what exists for its own boundary only, by name; the counters and `UNSETTLED` among it."""
        ...

    def single_like(self) -> Mapping[str, Tensor]:
        """Tensors of the shapes and types that `put` takes for those, without their numbers or memory."""
        ...

    def put(
        self, rows: Mapping[str, Sequence[Tensor]], singles: Mapping[str, Tensor], arrived: Arrived = everything
    ) -> None:
        """Make a state that has not begun the one whose parts these are, all of them and of the right shapes.

        None of their numbers is looked at before it has arrived, and those that come first are taken first: singles,
        then rows in the order of `like`.
        """
        ...


class StateParts:
    """`Parts` of a state on the CPU."""

    def __init__(self, state: State) -> None:
        self._state = state

    @property
    def length(self) -> int:
        """Tokens."""
        return self._state.length

    @property
    def memory(self) -> Memory:
        """Any."""
        return PLAIN

    def counts(self) -> dict[str, int]:
        """Rows of every table."""
        return {name: rows.length for name, rows in self._tables()}

    def like(self) -> dict[str, Tensor]:
        """No row of every table."""
        return {name: rows.upto(0) for name, rows in self._tables()}

    def rows(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, Tensor]:
        """Copies of some rows of every table."""
        return {name: rows.upto(rows.length)[slice(*ranges[name])].clone() for name, rows in self._tables()}

    def broken(self, tensors: Mapping[str, Tensor]) -> list[str]:
        """See `Parts.broken`."""
        tables = dict(self._tables())
        return [
            name
            for name, value in tensors.items()
            if not bool(torch.isfinite(tables[name].decode(value) if name in tables else value).all())
        ]

    def singles(self) -> dict[str, Tensor]:
        """See `Parts.singles`.

        Raises:
            StrataError: the state holds something that neither the tables nor this would keep (case K01).
        """
        tables = {name for name, _ in self._tables()}
        found = {name: value.clone() for name, value in self._state.tensors() if name not in tables}
        unknown = found.keys() - UNSETTLED - {COUNTERS} ^ {name for name, _, _ in self._single()}
        if unknown:
            raise StrataError(f"no part of a snapshot keeps {', '.join(sorted(unknown))}")
        return found

    def single_like(self) -> dict[str, Tensor]:
        """See `Parts.single_like`."""
        return {name: value.to("meta") for name, value in self._state.tensors() if name == COUNTERS} | {
            name: value.to("meta") for name, value, _ in self._single()
        }

    def put(
        self, rows: Mapping[str, Sequence[Tensor]], singles: Mapping[str, Tensor], arrived: Arrived = everything
    ) -> None:
        """See `Parts.put`."""
        arrived(singles.keys())
        for name, _, place in self._single():
            place(singles[name].clone())
        for name, table in self._tables():
            if rows[name]:
                arrived([name])
                whole = torch.cat(tuple(rows[name]))
                table.write(whole)
                table.commit(len(whole))
        length, position, *history = (int(x) for x in singles[COUNTERS])
        self._state.length, self._state.next_position, self._state.history = length, position, tuple(history)

    def _tables(self) -> Iterator[tuple[str, Rows]]:
        """Everything that grows, by name."""
        state = self._state
        yield "positions", state.positions
        named: list[tuple[str, GdnState | QsaState]] = [(f"layer.{i}", layer) for i, layer in enumerate(state.layers)]
        if state.mtp:
            yield "mtp.positions", state.mtp.positions
            named.append(("mtp", state.mtp.kv))
        for name, layer in named:
            if isinstance(layer, QsaState):
                for part in ("k", "v", "ik", "blocks"):
                    yield f"{name}.{part}", getattr(layer, part)

    def _single(self) -> Iterator[tuple[str, Tensor, Callable[[Tensor], None]]]:
        """Every tensor that exists for one boundary only, by name, and how to put another in its place."""
        state = self._state
        yield "ngram_tail", state.ngram_tail, partial(setattr, state, "ngram_tail")
        if state.mtp:
            yield "mtp.residual", state.mtp.residual, partial(setattr, state.mtp, "residual")
        for i, layer in enumerate(state.layers):
            if isinstance(layer, GdnState):
                yield f"layer.{i}.s", layer.s, partial(setattr, layer, "s")
                yield f"layer.{i}.tail", layer.tail, partial(setattr, layer, "tail")
