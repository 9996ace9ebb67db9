"""The experts that lie in the card's slots, and which should: a pure state machine without clock, device or copies.

Life of a slot: empty - `begin` - being copied into - `landed` - holds an expert - `begin` of the next - ...

A window looks experts up in a table in the device's memory, which is a copy of `slot_of` made before that window began.
So the order around a move is

1. `moves` and `begin`: the evicted expert is a miss from now on;
2. the table is sent to the device, ahead of every window that begins later;
3. the copy begins when every window is over that began before 2, for those may still read the slot;
4. the copy has ended: `landed`, and the newcomer counts in windows that begin after the next table.

`busy` keeps what is known to be used from being chosen at all: experts that a window in flight visits, or that were
fetched for the window to come.
"""

from collections.abc import Sequence
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from strata.memory.slots import passes
from strata.memory.slots.errors import SlotError
from strata.memory.slots.move import Move, Resized, Source
from strata.memory.slots.profile import Profile
from strata.memory.slots.rule import Rule
from strata.memory.slots.shelf import NOBODY, Shelf
from strata.memory.slots.usage import Usage

STAYS = 0.5
"""Of the counts of one conversation, when another goes on; chosen by measurement, docs/cache.md."""

NONE = np.empty(0, np.int64)
NO_FLAGS = np.empty(0, np.bool_)

Visits = NDArray[np.integer]
"""[n, 2 or more]: layer, expert, and whatever else is known; one row for each expert of a window."""


class SlotCache:
    """Which expert lies in which slot.

    Layers whose experts have the same number of bytes form a class, and every class has slots of its own, counted from
    0. A slot serves any layer of its class: experts of all its layers compete for its slots, so a layer that needs few
    leaves room to one that needs many. How much memory each class gets is said from outside (`divide`) and can change
    at any time (`resize`).

    Considered for a slot is an expert when it was missed; while its class has empty slots, every expert is.

    Attributes:
        sizes: bytes of an expert, by class.
        classes: class of each layer.
        experts: E, of every layer.
        rule: what the counts are made of, and what a newcomer has to be ahead by.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        classes: Sequence[int],
        slots: Sequence[int],
        *,
        experts: int = 512,
        rule: Rule | None = None,
    ) -> None:
        """All slots are empty.

        Args:
            sizes: bytes of an expert, by class.
            classes: class of each layer.
            slots: number of slots, by class; any number from 0.
            experts: of each layer.
            rule: parameters; the measured ones unless said.

        Raises:
            SlotError: the numbers do not fit together.
        """
        if len(sizes) != len(slots) or not classes or experts < 1:
            raise SlotError(
                f"a cache needs a layer, an expert, and slots for each class, not {len(classes)} layers of {experts} "
                f"experts and {len(slots)} numbers of slots for {len(sizes)} classes"
            )
        if sorted(set(classes)) != list(range(len(sizes))) or min(sizes) < 1:
            raise SlotError(
                f"every class from 0 to {len(sizes) - 1} needs a layer and a size, not layers of "
                f"{sorted(set(classes))} with {list(sizes)} bytes"
            )
        for each in slots:
            _check_count(each)
        self.sizes = tuple(sizes)
        self.classes = tuple(classes)
        self.experts = experts
        self.rule = rule or Rule()
        self._shape = (len(classes), experts)
        self._slot_of = np.full(self._shape, NOBODY, np.int32)
        self._flat = self._slot_of.reshape(-1)
        self._table = self._slot_of.view()
        self._table.flags.writeable = False
        every = len(self._flat)
        self._arriving = np.zeros(every, np.bool_)
        self._usage = Usage(every, self.rule)
        self._missed = np.empty(every, np.int64)
        self._misses = 0
        self._stamps = np.zeros(every, np.int64)
        self._stamp = 1
        self._busy = np.zeros(every, np.bool_)
        self._class_of = np.repeat(np.array(classes, np.int16), experts)
        # By class, in the order in which experts of equal count are taken: as many of each layer as of any other.
        spread = np.arange(every).reshape(self._shape).T.ravel()
        self._members = spread[np.argsort(self._class_of[spread], kind="stable")]
        self._borders = np.searchsorted(self._class_of[self._members], np.arange(len(sizes) + 1))
        self._each = np.diff(self._borders).tolist()
        self._shelves = [Shelf() for _ in sizes]
        self._books = np.empty((3, len(sizes), 0), np.int64)
        self._make_room(max(slots))
        for shelf, each in zip(self._shelves, slots, strict=True):
            shelf.grow(each)

    @classmethod
    def from_profile(
        cls,
        profile: Profile,
        sizes: Sequence[int],
        classes: Sequence[int],
        slots: Sequence[int],
        *,
        rule: Rule | None = None,
    ) -> "SlotCache":
        """A cache that begins with what another one has learned; its slots are empty, and `moves` says what to fetch.

        Raises:
            SlotError: the numbers do not fit together, or not with the profile.
        """
        layers, experts = profile.quick.shape
        if layers != len(classes):
            raise SlotError(f"the profile is of {layers} layers and the cache of {len(classes)}")
        cache = cls(sizes, classes, slots, experts=experts, rule=rule)
        cache._usage.quick.set(profile.quick)
        cache._usage.slow.set(profile.slow)
        return cache

    def profile(self) -> Profile:
        """What was learned, for the next start."""
        quick, slow = self._usage.quick.counts(), self._usage.slow.counts()
        return Profile(quick.reshape(self._shape), slow.reshape(self._shape))

    @property
    def slot_of(self) -> NDArray[np.int32]:
        """int32 [L, E]: slot within the layer's class, -1 for a miss. Read-only, always up to date."""
        return self._table

    @property
    def slots(self) -> tuple[int, ...]:
        """Number of slots, by class."""
        return tuple(shelf.count for shelf in self._shelves)

    @property
    def held(self) -> tuple[int, ...]:
        """Slots that hold an expert, by class."""
        return tuple(shelf.landed for shelf in self._shelves)

    @property
    def flying(self) -> int:
        """Copies that have begun and are not over."""
        return int(np.count_nonzero(self._arriving))

    def counts(self) -> NDArray[np.float64]:
        """[L, E]: the count by which experts are compared."""
        return self._usage.counts().reshape(self._shape)

    def sources(self, class_: int) -> list[Source]:
        """What lies in the slots of a class: to hold their bytes against the file's (case N05)."""
        shelf = self._shelves[class_]
        held = np.flatnonzero(shelf.owner[: shelf.count] != NOBODY).tolist()
        return [Source(slot, *self._pair(shelf.owner[slot]), int(shelf.generation[slot])) for slot in held]

    def seen(self, visits: Visits) -> int:
        """Count one window's visits: one for each expert, however many of the window's rows visit it.

        Returns:
            How many of them are hits by now.

        Raises:
            SlotError: a layer or an expert that there is not; then it was a window without visits.
        """
        self._usage.advance()
        rows = self._rows(visits)
        usage = self._usage
        hits, missed = passes.count()(
            *(rows, *self._shape, usage.sums, usage.quick.weight, usage.slow.weight),
            *(self._flat, self._stamps, self._stamp, self._missed, self._misses),
        )
        if hits < 0:
            self._refuse(rows[missed])
        self._misses = missed
        return hits

    def turn(self, heat: NDArray[np.floating] | None = None) -> NDArray[np.float64]:
        """Another conversation goes on alone from here: an option, for conversations that take long turns.

        Its own quick counts come back, and half of the present ones stay, for experts that are liked by all. Between
        conversations that share windows there is nothing to turn.

        Args:
            heat: [L, E], what `turn` gave when the conversation that goes on went last; None for a new one.

        Returns:
            [L, E]: the quick counts by now, to keep for the conversation that had the cache until now.

        Raises:
            SlotError: the heat is of other layers or experts.
        """
        before = self._usage.quick.counts().reshape(self._shape)
        if heat is not None and heat.shape != self._shape:
            raise SlotError(f"the heat of a conversation is of shape {heat.shape}, and {self._shape} was expected")
        self._usage.quick.set(STAYS * before + (0.0 if heat is None else heat))
        return before

    def moves(self, most: int, busy: Visits | None = None) -> list[Move]:
        """What should be moved now, the largest gain first. Nothing changes; what was missed is considered once.

        Args:
            most: moves at most.
            busy: [n, 2 or more]: experts that must not be evicted, whatever they count (case N03).

        Returns:
            Moves that can all be begun, in any order, as long as nothing else was begun or resized meanwhile.
        """
        missed = self._missed[: self._misses]
        self._misses = 0
        self._stamp += 1
        fills = [s.empties > 0 and s.landed < each for s, each in zip(self._shelves, self._each, strict=True)]
        return self._choose(missed, fills, most, NONE if busy is None else self._keys(busy), 0.0)

    def fetch(self, wanted: Visits, most: int, busy: Visits | None = None, *, worth: float = 1.0) -> list[Move]:
        """Moves for experts that the next window will probably visit.

        Args:
            wanted: [n, 2 or more]: which, the most wanted first. Those that are there already stay.
            most: moves at most.
            busy: as for `moves`.
            worth: visits that being wanted counts.
        """
        keys = self._keys(wanted)
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])]
        held = keys if busy is None else np.concatenate([keys, self._keys(busy)])
        return self._choose(keys, [False] * len(self._shelves), most, held, worth)

    def begin(self, move: Move) -> None:
        """A move's copy is about to begin: what lay in its slot is a miss from now on, and the newcomer still is.

        Raises:
            SlotError: the move is out of date; nothing has changed.
        """
        key, shelf = self._key(move.layer, move.expert), self._shelves[self.classes[move.layer]]
        out = NOBODY if move.out is None else self._key(*move.out)
        if (
            not 0 <= move.slot < shelf.count
            or shelf.generation[move.slot] + 1 != move.generation
            or shelf.owner[move.slot] != out
            or shelf.coming[move.slot] != NOBODY
            or self._arriving[key]
            or self._flat[key] >= 0
        ):
            raise SlotError(f"{move} does not fit what the slots hold by now; ask for moves anew")
        if out != NOBODY:
            self._flat[shelf.vacate(move.slot)] = NOBODY
        shelf.begin(move.slot, key)
        self._arriving[key] = True

    def landed(self, move: Move) -> bool:
        """The copy has ended well: the newcomer counts from now on.

        Returns:
            False if the slot was waiting to be given back, and is so now; then the newcomer is still a miss.

        Raises:
            SlotError: no such copy is under way.
        """
        return self._end(move, landed=True)

    def failed(self, move: Move) -> bool:
        """The copy has failed: the slot is empty, and both experts are misses.

        Returns:
            False if the slot was waiting to be given back, and is so now.

        Raises:
            SlotError: no such copy is under way.
        """
        return self._end(move, landed=False)

    def drop(self, layer: int, expert: int) -> int:
        """An expert's slot is empty from now on: its bytes were found to be wrong, or its memory is needed.

        Returns:
            The slot it lay in.

        Raises:
            SlotError: it lies in none.
        """
        key = self._key(layer, expert)
        slot = int(self._flat[key])
        if slot < 0:
            raise SlotError(f"expert {expert} of layer {layer} lies in no slot")
        shelf = self._shelves[self.classes[layer]]
        shelf.vacate(slot)
        self._flat[key] = NOBODY
        return slot

    def lend(self, class_: int, most: int) -> list[int]:
        """Give slots away for a while, until `take_back`: empty ones first, then those whose experts count least.

        What lay in them is a miss from now on, and nothing comes to them. One that is being copied into stays.

        Returns:
            Their numbers; fewer than `most` where there are no more.

        Raises:
            SlotError: there is no such class.
        """
        shelf = self._shelf(class_)
        open_ = np.flatnonzero(shelf.coming[: shelf.count] == NOBODY)
        owners = shelf.owner[open_]
        worth = np.where(owners == NOBODY, -1.0, self._usage.counts()[owners])
        chosen: list[int] = open_[np.argsort(worth, kind="stable")[: max(0, most)]].tolist()
        for slot in chosen:
            key = shelf.lend(slot, len(self._flat))
            if key != NOBODY:
                self._flat[key] = NOBODY
        return chosen

    def take_back(self, class_: int, slots: Sequence[int]) -> list[int]:
        """Slots that were lent are empty, and `moves` fills them again.

        Returns:
            Those of them that are still this cache's.

        Raises:
            SlotError: one was not lent; nothing has changed.
        """
        shelf = self._shelf(class_)
        wrong = [s for s in slots if not 0 <= s < len(shelf.coming) or shelf.coming[s] != len(self._flat)]
        if wrong or len(set(slots)) < len(slots):
            raise SlotError(f"slots {wrong or list(slots)} of class {class_} were not lent")
        return [slot for slot in slots if shelf.end(slot, landed=False)]

    def gather(self, class_: int, slots: int) -> list[tuple[int, int]]:
        """Before a class has only so many slots: experts behind them change place with those there that count less.

        The most takes the place of the least. Whoever gave way is a miss from now on; the others are where they have
        come to as soon as their bytes are copied, before the next window begins.

        Returns:
            From which slot to which bytes have to be copied, in any order.

        Raises:
            SlotError: there is no such class, or no such number.
        """
        _check_count(slots)
        shelf = self._shelf(class_)
        counts = self._usage.counts()
        open_ = np.flatnonzero(shelf.coming[: shelf.count] == NOBODY)
        owners = shelf.owner[open_]
        worth = np.where(owners == NOBODY, -1.0, counts[owners])
        front, behind = open_ < slots, (open_ >= slots) & (owners != NOBODY)
        to = np.argsort(worth[front], kind="stable")
        source = np.argsort(-worth[behind], kind="stable")
        count = min(len(to), len(source))
        to, source = np.flatnonzero(front)[to[:count]], np.flatnonzero(behind)[source[:count]]
        better = worth[source] > worth[to]
        pairs: list[tuple[int, int]] = np.stack([open_[source[better]], open_[to[better]]], axis=1).tolist()
        for origin, place in pairs:
            if shelf.owner[place] != NOBODY:
                self._flat[shelf.vacate(place)] = NOBODY
            key = shelf.vacate(origin)
            shelf.begin(place, key)
            shelf.end(place, landed=True)
            self._flat[key] = place
        return [(origin, place) for origin, place in pairs]

    def resize(self, class_: int, slots: int) -> Resized:
        """Another number of slots for a class; the highest go, and new ones come at the end.

        What lay in slots that go is a miss at once; `moves` brings back what was worth more than what stays. Of those
        that are lent the same holds as of those that are being copied into: they wait until they are taken back.

        Raises:
            SlotError: there is no such class, or no such number.
        """
        _check_count(slots)
        shelf = self._shelf(class_)
        if slots >= shelf.count:
            self._make_room(slots)
            return Resized(taken=tuple(shelf.grow(slots)))
        given, waiting, lost = shelf.shrink(slots)
        self._flat[lost] = NOBODY
        return Resized(tuple(given), tuple(waiting), (), tuple(self._pair(key) for key in lost))

    def _shelf(self, class_: int) -> Shelf:
        if not 0 <= class_ < len(self._shelves):
            raise SlotError(f"there are classes 0 to {len(self._shelves) - 1}, not {class_}")
        return self._shelves[class_]

    def _end(self, move: Move, *, landed: bool) -> bool:
        key, shelf = self._key(move.layer, move.expert), self._shelves[self.classes[move.layer]]
        if (
            not 0 <= move.slot < len(shelf.coming)
            or shelf.coming[move.slot] != key
            or shelf.generation[move.slot] != move.generation
        ):
            raise SlotError(f"{move} is not under way; every move that has begun ends once, landed or failed")
        ours = shelf.end(move.slot, landed=landed)
        self._arriving[key] = False
        if ours and landed:
            self._flat[key] = move.slot
        return ours

    def _choose(
        self, keys: NDArray[np.int64], fills: list[bool], most: int, busy: NDArray[np.int64], worth: float
    ) -> list[Move]:
        """The best moves, given the keys considered, the classes for which all are, and the keys that stay."""
        if most < 1:
            return []
        self._busy[busy] = True
        found = passes.choose()(
            *(keys, self._members, self._borders, np.array([(s.count, s.empties) for s in self._shelves])),
            np.array(fills),
            (self._flat, self._class_of, self._arriving, self._busy if len(busy) else NO_FLAGS, self._usage.sums),
            *(self._usage.scales, self._books, worth, self.rule.margin),
            *(min(most, len(self._flat)), self._work, self._out, self._plan),
        )
        self._busy[busy] = False
        gains = self._out[2]
        return [
            Move(*self._pair(key), slot, None if out == NOBODY else self._pair(out), generation, float(gains[place]))
            for key, slot, out, generation, place in self._plan[:found].tolist()
        ]

    def _make_room(self, slots: int) -> None:
        """Have books and work space for a class of so many slots."""
        before = self._books.shape[2]
        if slots > before:
            more = np.full((3, len(self._shelves), slots - before), NOBODY)
            more[2] = 0
            self._books = np.concatenate([self._books, more], axis=2)
        for number, shelf in enumerate(self._shelves):
            shelf.use(*self._books[:, number])
        size = max(len(self._flat), self._books.shape[2])
        self._work = (np.empty(size), np.empty(size, np.int64), np.empty(size, np.int64))
        self._out = (np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size))
        self._plan = np.empty((size, 5), np.int64)

    def _rows(self, visits: Visits) -> NDArray[np.int32]:
        if visits.ndim != 2 or visits.shape[1] < 2 or (visits.size and visits.dtype.kind not in "iu"):
            raise SlotError(f"visits are rows of layer and expert, not {visits.dtype} of shape {visits.shape}")
        if visits.dtype != np.int32:
            visits = visits.astype(np.int64).clip(-1, max(self._shape))  # so that no number becomes another one
        return np.ascontiguousarray(visits, np.int32)

    def _keys(self, visits: Visits) -> NDArray[np.int64]:
        rows = self._rows(visits)
        wrong = ((rows[:, :2] < 0) | (rows[:, :2] >= self._shape)).any(1)
        if wrong.any():
            self._refuse(rows[wrong.argmax()])
        return rows[:, 0].astype(np.int64) * self.experts + rows[:, 1]

    def _refuse(self, row: NDArray[np.integer]) -> NoReturn:
        raise SlotError(
            f"there is no expert {row[1]} of layer {row[0]}; the cache is of {self._shape[0]} layers with "
            f"{self.experts} experts"
        )

    def _key(self, layer: int, expert: int) -> int:
        if not (0 <= layer < self._shape[0] and 0 <= expert < self.experts):
            self._refuse(np.array([layer, expert]))
        return layer * self.experts + expert

    def _pair(self, key: int) -> tuple[int, int]:
        layer, expert = divmod(int(key), self.experts)
        return layer, expert


def _check_count(slots: int) -> None:
    if isinstance(slots, bool) or not isinstance(slots, int) or slots < 0:
        raise SlotError(f"a number of slots is a whole number from 0, not {slots!r}")
