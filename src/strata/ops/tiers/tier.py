"""Experts of a whole model in two places: some in slots on the device, all of them in RAM.

`Tier` owns what both halves of a window share, and what changes between windows: which expert has a slot. A layer's
part of a window is `strata.ops.tiers.layer.LayerTier`, on branches beside the hits.
"""

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from strata.errors import TierError
from strata.experts.compute import Expert
from strata.experts.misses import Costs, Fault, HostLoop, Mailbox, shares
from strata.model.tally import Tally
from strata.ops.experts.slots import SlotLayout, Slots
from strata.ops.tiers import kernels
from strata.ops.tiers.borrowing import Borrowing
from strata.ops.tiers.bring import sources
from strata.ops.tiers.layer import Halves, LayerTier, LinkLists
from strata.ops.tiers.moving import Mover
from strata.ops.tiers.ram import Ram
from strata.ops.tiers.room import room as room_for
from strata.ops.tiers.supply import Supply
from strata.ops.tiers.tally import tallied

QUIET = 32
"""Windows without a pass over a prompt between them, after which slots that were lent to it are taken back: more than
there are between two passes of one prompt."""

LENT = 4
"""Of the slots of a class, one in so many is lent at most."""

EVERY = 4
"""Windows from one look at what should be moved to the next."""

MOST_MOVES = 96

LOOKS = 2_000_000
"""The interpreter's patience where nobody says: it has no clock, and a look takes some tens of microseconds."""


def _told_nobody() -> None:
    """Nobody has to be told."""


_nothing: Callable[[], None] = _told_nobody


class Cache(Protocol):
    """What decides which experts have slots: `strata.memory.slots.SlotCache`, or another with its interface."""

    @property
    def slot_of(self) -> NDArray[np.int32]:
        """``int32 [L, E]``, slot within the layer's class, or -1."""
        ...

    def counts(self) -> NDArray[np.floating]:
        """[L, E]: what experts are worth."""
        ...

    def seen(self, visits: NDArray[np.integer]) -> Any:
        """Count one window's visits, ``[n, 3]``: layer, expert, rows."""
        ...

    def moves(self, most: int, busy: NDArray[np.integer] | None = None) -> Sequence[Any]:
        """What should be moved now: each has `layer`, `expert`, `slot`."""
        ...

    def begin(self, move: Any) -> None:
        """Its slot's expert is a miss from now on."""
        ...

    def landed(self, move: Any) -> Any:
        """The newcomer counts from now on."""
        ...

    def resize(self, class_: int, slots: int) -> Any:
        """Another number of slots for a class: the highest go, and their experts are misses from now on."""
        ...


@dataclass(frozen=True, slots=True)
class TierOptions:
    """How the halves work together.

    Attributes:
        cpus: processors of the host's threads, the loop's own first; None for one that may run anywhere.
        costs: microseconds of either side, by which misses are shared out.
        room: experts that the link may bring for one layer; 0 for none.
        patience: seconds a window waits for the host.
        looks: the same for the interpreter, in looks.
        every: windows from one look at what should be moved to the next; 0 for never.
        moves: experts moved at most at a time.
    """

    cpus: tuple[int | None, ...] = (None,)
    costs: Costs = field(default_factory=lambda: Costs(52.0, 45.0, 8.0, 6.0))
    room: int = 16
    patience: float = 10.0
    looks: int = LOOKS
    every: int = EVERY
    moves: int = MOST_MOVES


class Tier:
    """The tiers of one model on one device.

    Attributes:
        table: ``int32 [L, E]`` on the device: slot within the layer's class, -1 for a miss; as of the last `begin`.
        cache: what decides about it.
        layers: each layer's part.
        room: memory of the slots.
        ram: where experts lie.
        supply: RAM, if it does not hold all experts.
        last: what the last window met.
        total: what all have.
        still: learn nothing and move nothing.
        costs: microseconds of both sides, once they are measured.
        miss: seconds that one miss more adds to a window, by the costs in force.
        borrowing: what of the slots' memory a long prompt has meanwhile.
        rest: called before a window, which takes room that a prompt's ring may have had.
    """

    def __init__(
        self,
        given: Sequence[SlotLayout],
        experts: Sequence[Expert],
        ram: Ram,
        cache: Cache,
        classes: Sequence[int],
        slots: Sequence[int],
        topk: int,
        device: torch.device,
        options: TierOptions | None = None,
    ) -> None:
        """Take memory; no expert has a slot before `fill`.

        Args:
            given: slots of each layer.
            experts: types, shapes and scales of each layer's experts.
            ram: where they lie.
            cache: all of whose slots are empty.
            classes: of each layer; layers of a class have slots of one size.
            slots: of each class.
            topk: experts a row chooses.
            device: where slots are.
            options: see there.
        """
        self.options = o = options or TierOptions()
        self.costs: Costs | None = None
        self._lent: list[int] = []
        self._quiet = 0
        self.borrowing = Borrowing(self, device)
        self.rest = _nothing
        count, first = len(given), given[0]
        each = experts[0].gate.experts
        self._device, self._on_gpu = device, device.type == "cuda"
        self._mailbox = Mailbox(topk, first.hidden)
        self._box = torch.zeros(self._mailbox.nbytes, dtype=torch.uint8, pin_memory=self._on_gpu)
        self.ram = ram
        self.cache = cache
        self.table = torch.full((count, each), -1, dtype=torch.int32, device=device)
        self._staged = torch.full((count, each), -1, dtype=torch.int32, pin_memory=self._on_gpu)
        self._sent = self._staged.numpy().copy()
        self.state = torch.zeros(kernels.STATE, dtype=torch.int64, device=device)
        self.state[kernels.LIMIT.value] = round(o.patience * 1e9) if not _interpreted() else o.looks
        self.sums = torch.zeros((count, kernels.SUMS), dtype=torch.int64, device=device)
        self.visits = torch.zeros((count, 1 + 2 * self._mailbox.pairs), dtype=torch.int32, device=device)
        self._told_sums = torch.zeros_like(self.sums, device="cpu", pin_memory=self._on_gpu)
        self._told_visits = torch.zeros_like(self.visits, device="cpu", pin_memory=self._on_gpu)
        self.split = torch.zeros(self._mailbox.pairs + 1, dtype=torch.int32, device=device)
        self.share_out(o.costs)

        widest, room = max(kind.nbytes for kind in given), max(1, min(o.room, self._mailbox.pairs))
        self.supply = None if ram.stock is None else Supply(ram.stock, ram.base, device)
        places = None if self.supply is None else self.supply.places
        by_layer = sources(list(given), ram.addresses, ram.base, device, places)
        heaviest = max(source.nbytes for source in by_layer)
        sizes = [given[classes.index(i)].nbytes for i in range(len(slots))]
        most = [max(number, classes.count(i) * each) for i, number in enumerate(slots)]
        self.room = room_for(sizes, most, slots, device)
        self._largest = max(range(len(slots)), key=lambda kind: given[classes.index(kind)].nbytes)
        self.largest = self.room.arrays[self._largest]
        self.largest_bytes = widest, heaviest
        # Whole slots away from the largest, so that slots that a prompt's ring borrows count from the same place.
        scratch = torch.zeros((room + 1) * widest, dtype=torch.uint8, device=device)
        self._scratch = scratch[(self.largest.data_ptr() - scratch.data_ptr()) % widest :][: room * widest]
        self._stage = torch.zeros(room * heaviest, dtype=torch.uint8, device=device)
        halves = Halves(
            self._mailbox, self._box, self.state, self.split, self.sums, self.visits,
            LinkLists.empty(self._mailbox.pairs, device), self._stage, o.room,
            None if self.supply is None else self.supply.nobody,
        )  # fmt: skip
        self.layers = [
            LayerTier(
                i, halves, source,
                Slots(source.layout, self.room.arrays[kind], self.table[i], -1, _scales(expert, device)),
                self._scratch[: room * source.layout.nbytes].view(room, -1),
            )
            for i, (source, kind, expert) in enumerate(zip(by_layer, classes, experts, strict=True))
        ]  # fmt: skip
        at = None if self.supply is None else self.supply.at
        self._mover = Mover(by_layer, [self.room.arrays[kind] for kind in classes], device, at)
        self.host = HostLoop(self._mailbox, self._box.numpy(), experts, o.cpus, addresses=ram.addresses, disk=ram.stock)
        self._windows = self._last_look = 0
        self._fresh = self.still = False
        self.last, self.total = Tally(), Tally()
        weakref.finalize(self, self.host.close)  # its thread knows the host's half and nothing of us
        self.host.start()

    def share_out(self, costs: Costs) -> None:
        """Share misses out by other costs from the next window on; no byte changes."""
        room = self.options.room
        self.miss = 1e-6 * (costs.each if room else costs.host)
        self.split.copy_(torch.from_numpy(shares(costs, self._mailbox.pairs, room)))

    def fill(self, on_bytes: Callable[[int], None] | None = None) -> None:
        """Bring experts to empty slots, those first that the cache wants first. Nothing else may run."""
        self._land(wait=True)  # what windows have begun
        while moves := self.cache.moves(self.options.moves):
            while moves:
                some = moves if self.supply is None else self.supply.fetched(moves)
                for move in some:
                    self.cache.begin(move)
                self._mover.launch(some)
                self._land(wait=True)
                if on_bytes:
                    on_bytes(sum(self.layers[move.layer].source.nbytes for move in some))
                moves = [move for move in moves if move not in some]
        if self.supply is not None:
            self.supply.fill(self.cache.slot_of, self.cache.counts(), on_bytes)
        self._send()

    def begin(self) -> None:
        """A pass is about to be launched: its table is sent ahead of it, and the host is awake.

        Raises:
            TierError: an earlier window was given up and the host is still at it.
        """
        if self.host.fault() is not None or not self.host.running:
            self._recover()
        self._land()
        self._send()
        self.rest()
        self.host.ring()

    def end(self, *, window: bool) -> None:
        """All of a pass has been launched; also while it is recorded."""
        self._told_sums.copy_(self.sums, non_blocking=True)
        if window:
            self._told_visits.copy_(self.visits, non_blocking=True)

    def window_begun(self) -> None:
        """The pass that has begun is a window; also when it is replayed."""
        self._fresh = True

    def settled(self) -> None:
        """What was launched is over: say what went wrong, learn from what was visited, and begin what should move.

        Raises:
            TierError: the window was given up; its rows are no numbers. The next one will be right.
        """
        fault = self.host.fault()
        fresh, self._fresh = self._fresh and not self.still, False
        if fault is not None:
            self._give_up(fault)
        self._land()
        now = tallied(self._told_sums.numpy(), 1.0 if _interpreted() else 1e-3)
        if self.supply is not None:
            now = self.supply.met(replace(now, ssd=self.total.ssd, read_us=self.total.read_us))
        if fresh:
            self.last = now - self.total
        self.total = now
        if fresh:
            self._windows += 1
            self._quiet += 1
            if self._quiet >= QUIET and (self._lent or self.borrowing.nbytes):
                self._take_back(self._lent)
                self.borrowing.give_back()
            visited = self._visited()
            self.cache.seen(visited)
            if self.supply is not None:
                self.supply.seen(visited)
            every = self.options.every
            if every and self._windows - self._last_look >= every and not self._mover.flying:
                self._last_look = self._windows
                self._move(self.cache.moves(self.options.moves))

    def _move(self, moves: Sequence[Any]) -> None:
        """Begin some moves. No window runs that could read their slots, and none begins before the table is sent."""
        if self.supply is not None:
            moves = self.supply.movable(moves)
        for move in moves:
            self.cache.begin(move)
        if self.supply is not None:
            self.supply.begun(moves)
        if moves:
            self._mover.launch(moves)
            if not self._on_gpu:
                self._land()

    def _land(self, *, wait: bool = False) -> None:
        moves = self._mover.landed(wait=wait)
        for move in moves:
            self.cache.landed(move)
        if self.supply is not None:
            self.supply.moved(moves)

    def resize(self, slots: Sequence[int], spare: int = 0) -> None:
        """Another number of slots, between passes: memory of those that go is the system's at once.

        What lay in them is a miss from the next pass on. New ones are filled by moves, as windows go on. Addresses do
        not change, so whatever was recorded goes on as it is.

        Args:
            slots: by class.
            spare: bytes of the device that must stay free.

        Raises:
            RoomError: there is not so much memory; nothing has changed.
            TierError: the system cannot take slots away, or there can never be so many.
        """
        self.borrowing.let_go()
        self.set_slots(slots, spare)
        self.borrowing.end()  # a prompt borrows anew with its next pass

    def set_slots(self, slots: Sequence[int], spare: int = 0) -> None:
        """See `resize`, which says how many there are where nothing is borrowed."""
        before = self.room.slots

        def go() -> None:
            self._land(wait=True)
            self._take_back(self._lent)
            for kind, (old, new) in enumerate(zip(before, slots, strict=True)):
                if new < old:
                    self._gather(kind, new)
                    self.cache.resize(kind, new)
            self._send()
            if self._on_gpu:
                torch.cuda.synchronize(self._device)  # passes that were launched look experts up in earlier tables

        self.room.set(slots, before=go, spare=spare)
        for kind, (old, new) in enumerate(zip(before, slots, strict=True)):
            if new > old:
                self.cache.resize(kind, new)

    def _gather(self, kind: int, slots: int) -> None:
        """The experts of a class that are worth most come to lie before a slot, in place of those worth least.

        Copies are launched where passes are, so those before have read what lay there. 350 of 2 MB are a millisecond.
        """
        gather = getattr(self.cache, "gather", None)
        array = self.room.arrays[kind]
        for source, to in () if gather is None else gather(kind, slots):
            array[to].copy_(array[source], non_blocking=True)

    @property
    def room_for_ring(self) -> tuple[Tensor, Tensor]:
        """Where the link brings what windows miss, uint8; between windows it is a prompt's.

        Slots of the largest layers, whole ones away from those of `largest`; and blocks as the file has them.
        """
        return self._scratch, self._stage

    def prompted(self) -> None:
        """A prompt is being read: what it has of slots comes back only after as many windows as are `QUIET`."""
        self._quiet = 0

    @property
    def windows(self) -> int:
        """Windows whose visits were counted."""
        return self._windows

    def gauges(self) -> dict[str, int]:
        """How many experts the slots hold now and could hold, of how many there are, and their memory in bytes."""
        return {
            "slots": sum(self.room.slots),
            "slots_held": int(np.count_nonzero(self.cache.slot_of >= 0)),
            "slot_experts": self.table.numel(),
            "slot_bytes": self.room.nbytes,
        }

    def close(self) -> None:
        """End the host's threads."""
        self.host.close()

    def _visited(self) -> NDArray[np.int32]:
        """Layer, expert and rows of every visit of the last window: ``int32 [n, 3]``."""
        told, most = self._told_visits.numpy(), self._mailbox.pairs
        layer, place = np.nonzero(np.arange(most) < told[:, :1])
        return np.stack([layer, told[layer, 1 + place], told[layer, 1 + most + place]], axis=1).astype(np.int32)

    @property
    def sent(self) -> NDArray[np.int32]:
        """The table as the device has it: ``int32 [L, E]``."""
        return self._sent

    def send_table(self) -> None:
        """What has landed counts from now on, and the device knows; as `begin`, for passes that ask for no host."""
        self._land()
        self._send()

    def lend(self, most: int) -> tuple[int, ...]:
        """Slots of `largest` that a prompt uses until it is read: those whose experts count least, now missing.

        They come back by themselves, empty, when windows go on without prompts, and are filled in their shadow. A cache
        that never gives anything up lends nothing.

        Args:
            most: slots; those that are lent already count.

        Returns:
            All that are lent: no more than one of four, and none while there are fewer than that.
        """
        self._quiet = 0
        lend = getattr(self.cache, "lend", None)
        if lend is None:
            return ()
        count = self.cache.slots[self._largest]  # type: ignore[attr-defined]  # it lends
        self._take_back([slot for slot in self._lent if slot >= count])
        most = min(most, count // LENT)
        if most > len(self._lent):
            self._lent += lend(self._largest, most - len(self._lent))
            self._send()
        return tuple(self._lent) if most else ()

    def _take_back(self, slots: Sequence[int]) -> None:
        if slots:
            gone = set(slots)
            self.cache.take_back(self._largest, list(slots))  # type: ignore[attr-defined]  # it has lent them
            self._lent = [slot for slot in self._lent if slot not in gone]

    def _send(self) -> None:
        """The table as the cache has it now, ahead of what is launched next."""
        if self.supply is not None:
            self.supply.begin(self.cache.slot_of)
        if np.array_equal(self._sent, self.cache.slot_of):
            return
        if self._on_gpu:
            torch.cuda.current_stream(self._device).synchronize()  # the last table may still be on its way
        self._sent[:] = self.cache.slot_of
        self._staged.numpy()[:] = self._sent
        self.table.copy_(self._staged, non_blocking=True)

    def _give_up(self, fault: Fault) -> None:
        report = f"a window was given up: {fault}"
        try:
            self._recover()
        except TierError as error:
            report += f"; {error}"
        raise TierError(report)

    def _recover(self) -> None:
        self.host.recover()
        self.state[kernels.FAULTED.value] = 0


def _scales(expert: Expert, device: torch.device) -> Tensor | None:
    """Scales of whole matrices, as `strata.ops.experts.slots.Slots` has them."""
    found = [matrix.scales for matrix in expert]
    if all(len(one) == 1 and one[0] == 1 for one in found):
        return None
    count = expert.gate.experts
    rows = [np.concatenate([np.broadcast_to(one, count), np.ones(1, np.float32)]) for one in found]
    return torch.from_numpy(np.stack(rows)).to(device)


def _interpreted() -> bool:
    import triton

    return bool(triton.knobs.runtime.interpret)
