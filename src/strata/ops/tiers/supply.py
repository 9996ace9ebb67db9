"""RAM that does not hold all of a tier's experts: what the device may take there, and what is on its way through it.

The other experts lie on the disk. The host's half of a window asks for those itself (`strata.memory.tier.Stock.visit`);
here is what happens between windows, and for copies to the device that run beside them.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.memory.arena import Filling
from strata.memory.errors import StorageError
from strata.memory.tier import Stock
from strata.model.tally import Tally
from strata.ops.tiers.bring import units


class _Pair(Protocol):
    """A move, as far as it matters here."""

    @property
    def layer(self) -> int: ...

    @property
    def expert(self) -> int: ...


class Supply:
    """A stock as a device sees it.

    Args:
        stock: which experts are in RAM.
        base: uint8, memory that the device reaches.
        device: where slots are.

    Attributes:
        places: int64 [L, E, 3] on the device, for windows: units of 16 bytes from `base` on.
        nobody: the unit of an expert that they may not take there.
    """

    def __init__(self, stock: Stock, base: Tensor, device: torch.device) -> None:
        self.stock, self._base, self._device = stock, base, device
        found = units(stock.addresses, base)
        self.nobody = int(units(np.array([stock.nobody]), base)[0])
        self.places = torch.from_numpy(found).to(device)
        self._staged = torch.from_numpy(found).pin_memory() if device.type == "cuda" else torch.from_numpy(found)
        self._using: list[tuple[Any, int, NDArray[np.int64]]] = []
        self._last = (0, 0.0)

    @property
    def absent(self) -> float:
        """Share of all experts for which RAM has no slot."""
        return 1.0 - self.stock.slots / self.places[:, :, 0].numel()

    def begin(self, slot_of: NDArray[np.integer]) -> None:
        """A pass is about to be launched: whom it may take is sent ahead of it.

        Args:
            slot_of: [L, E], as the pass will see it: below 0 for an expert without a slot.
        """
        self.let_go(wait=True)
        self.stock.unbook()
        if not self.stock.begin(slot_of >= 0):
            return
        if self._device.type == "cuda":  # whoever is not shown any more may still be read, and the last table be sent
            torch.cuda.current_stream(self._device).synchronize()
        self._staged.numpy()[:] = units(self.stock.places(), self._base)
        self.places.copy_(self._staged, non_blocking=True)

    def seen(self, visits: NDArray[np.integer]) -> None:
        """See `Stock.seen`."""
        self.stock.seen(visits)

    def met(self, tally: Tally) -> Tally:
        """The same, with what windows had to read from the disk since the last time."""
        (missed, slept), self._last = self._last, (self.stock.missed, self.stock.slept)
        return tally.read(self._last[0] - missed, 1e6 * (self._last[1] - slept))

    def fill(
        self, slot_of: NDArray[np.integer], worth: NDArray[np.floating], on_bytes: Callable[[int], None] | None
    ) -> None:
        """Read as many experts as there is room for, those first that have no slot and are worth most."""
        before = 0

        def told(done: Filling) -> None:
            nonlocal before
            if on_bytes:
                on_bytes(done.done - before)
            before = done.done

        self.stock.begin(slot_of >= 0)
        self.stock.fill(self.stock.best(worth), told)

    # Moves to slots.

    def movable(self, moves: Sequence[Any]) -> list[Any]:
        """Those that can begin, held until `moved`; of the others the experts are asked for."""
        held = self.stock.hold([(move.layer, move.expert) for move in moves])
        for move, here in zip(moves, held, strict=True):
            if not here:
                self.stock.ask(move.layer, np.array([move.expert]))
        return [move for move, here in zip(moves, held, strict=True) if here]

    def begun(self, moves: Sequence[Any]) -> None:
        """Whoever had their slots is missing from now on: it is asked for before somebody misses it."""
        for move in moves:
            out = getattr(move, "out", None)
            if out is not None:
                self.stock.ask(out[0], np.array([out[1]]))

    def moved(self, moves: Sequence[_Pair]) -> None:
        """Their copies have ended."""
        for move in moves:
            self.stock.release(move.layer, np.array([move.expert]))

    def fetched(self, moves: Sequence[Any]) -> list[Any]:
        """As many of these as RAM has room for at a time, read and held until `moved`; at least one."""
        found = []
        for layer in sorted({move.layer for move in moves}):
            mine = {move.expert: move for move in moves if move.layer == layer}
            taken = self.stock.take(layer, np.array(list(mine), np.int64))
            found += [mine[expert] for expert in taken.tolist()]
            if len(taken) < len(mine):
                break
        return found

    # Copies of prompts.

    def want(self, layer: int, experts: Sequence[int]) -> bool:
        """Read ahead; False if there was no room for all of them."""
        return self.stock.want(layer, np.array(experts, np.int64)) == len(experts)

    def there(self, layer: int, experts: Sequence[int]) -> bool:
        """Whether all are in RAM and stay there; those that are not are asked for."""
        return self.want(layer, experts) and bool(self.stock.here(layer)[list(experts)].all())

    def taken(self, layer: int, experts: Sequence[int]) -> Iterator[tuple[list[int], NDArray[np.int64]]]:
        """Experts for copies that are launched on the current stream, group by group as RAM has room.

        Yields:
            Which of `experts`, as places in that list, and their addresses: int64 [n, 3].

        Raises:
            StorageError: the disk failed, or does not answer, or all of RAM is in use.
        """
        left = np.array(experts, np.int64)
        place = {expert: i for i, expert in enumerate(left.tolist())}
        while len(left):
            self.let_go(wait=False)
            some = self.stock.take(layer, left)
            if not len(some):
                if not self._using:
                    raise StorageError(f"no slot for an expert of layer {layer}: all {self.stock.slots} are in use")
                self.let_go(wait=True)
                continue
            yield [place[expert] for expert in some.tolist()], self.stock.addresses[layer, some]
            self._using.append((self._event(), layer, some))
            left = left[~np.isin(left, some)]

    def let_go(self, *, wait: bool) -> None:
        """End the use of what copies have ended with; with `wait` when all have."""
        while self._using:
            event, layer, experts = self._using[0]
            if event is not None and not event.query():
                if not wait:
                    return
                event.synchronize()
            self.stock.release(layer, experts)
            self._using.pop(0)

    def at(self, layer: int, experts: NDArray[np.integer]) -> Tensor:
        """Where experts lie now: int64 [n, 3] on the device."""
        found = torch.from_numpy(units(self.stock.addresses[layer, experts], self._base))
        return found.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else found

    def _event(self) -> Any:
        if self._device.type != "cuda":
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self._device))
        return event
