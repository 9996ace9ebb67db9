"""Memory of slots that can go and come again: against a dictionary, with a device that runs out of it."""

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

pytest.importorskip("triton")

from strata.errors import RoomError, TierError
from strata.ops.tiers import room as rooms
from strata.ops.tiers.chunks import HostChunks
from strata.ops.tiers.room import FixedRoom, SlotRoom, lends

SIZES, MOST = (1536, 512, 9000), (12, 40, 5)
PAGE = HostChunks().size


def chunks(slots):
    return [max(1, -(-size * each // PAGE)) for size, each in zip(SIZES, slots, strict=True)]


class Rooms(RuleBasedStateMachine):
    """What is written to a slot stays until its memory goes; addresses always stay."""

    def __init__(self):
        super().__init__()
        self.system = HostChunks(most=24)
        self.slots = (3, 8, 1)
        self.room = SlotRoom(self.system, SIZES, MOST, self.slots)
        self.at = [array.data_ptr() for array in self.room.arrays]
        self.known: dict[tuple[int, int], int] = {}
        self.others = 0

    @rule(kind=st.integers(0, 2), place=st.integers(0, 39), value=st.integers(1, 255))
    def write(self, kind, place, value):
        if place < self.slots[kind]:
            self.room.arrays[kind][place] = value
            self.known[kind, place] = value

    @rule(pages=st.integers(0, 26))
    def fewer_slots_hold_so_much_less(self, pages):
        """Each class gives its share of whole chunks; one keeps one at least."""
        held = chunks(self.slots)
        if pages > sum(held) - len(held):
            with pytest.raises(RoomError, match="do not hold"):
                self.room.without(self.slots, pages * PAGE)
            return
        found = self.room.without(self.slots, pages * PAGE)
        gives = [was - now for was, now in zip(held, chunks(found), strict=True)]
        assert sum(gives) >= pages
        assert found == self.slots or pages
        assert all(0 <= now <= was for was, now in zip(self.slots, found, strict=True))
        for size, gone, each in zip(SIZES, gives, held, strict=True):
            assert gone <= -(-pages * (each - 1) // max(1, sum(held) - len(held))) + 1 + size // PAGE, "its share"

    @rule(slots=st.tuples(*(st.integers(0, most) for most in MOST)), spare=st.integers(0, 3))
    def resize(self, slots, spare):
        need = sum(chunks(slots)) - sum(chunks(self.slots))
        free = self.system.most - self.others - sum(chunks(self.slots)) - spare
        told = []
        if need > max(0, free):
            with pytest.raises(RoomError, match="are free for slots"):
                self.room.set(slots, before=lambda: told.append(None), spare=spare * PAGE)
            assert not told
            return
        self.room.set(slots, before=lambda: told.append(self._held()), spare=spare * PAGE)
        assert told == [True]  # nothing had gone yet
        self.slots = slots
        kept = chunks(slots)
        self.known = {  # a slot whose last byte is behind the end has lost something
            (kind, place): value
            for (kind, place), value in self.known.items()
            if place < slots[kind] and (place + 1) * SIZES[kind] <= kept[kind] * PAGE
        }

    @precondition(lambda self: self.system.taken < self.system.most)
    @rule()
    def somebody_takes(self):
        self.system.take()
        self.others += 1

    @precondition(lambda self: self.others)
    @rule()
    def somebody_gives(self):
        self.system.drop(None)
        self.others -= 1

    @rule()
    def no_such_number(self):
        with pytest.raises(TierError, match="cannot have"):
            self.room.set((MOST[0] + 1, 0, 0))

    def _held(self):
        return all(bool((self.room.arrays[k][place] == value).all()) for (k, place), value in self.known.items())

    @invariant()
    def holds(self):
        assert self._held()
        assert self.room.slots == self.slots
        assert self.room.nbytes == sum(chunks(self.slots)) * PAGE
        assert self.system.taken == self.others + sum(chunks(self.slots))
        assert [array.data_ptr() for array in self.room.arrays] == self.at


TestRooms = Rooms.TestCase
TestRooms.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_what_was_given_back_holds_nothing_any_more():
    room = SlotRoom(HostChunks(), [PAGE], [4], [4])
    room.arrays[0][:] = 7
    room.set([2])
    room.set([4])
    assert [int(slot.max()) for slot in room.arrays[0]] == [7, 7, 0, 0]


def test_a_chunk_that_cannot_be_had_after_all_changes_nothing():
    """Somebody else takes memory between the look at what is free and the last chunk."""

    class Busy(HostChunks):
        def free(self):
            return 1 << 40

    system = Busy(most=6)
    room = SlotRoom(system, [PAGE, PAGE], [8, 8], [3, 1])
    with pytest.raises(RoomError):
        room.set([0, 8])
    assert (room.slots, system.taken) == ((3, 1), 4)


def test_memory_is_the_systems_when_nobody_has_it():
    system = HostChunks()
    room = SlotRoom(system, [PAGE], [4], [3])
    array = room.arrays[0]
    array[:3] = 5
    del room
    assert system.taken == 0
    assert int(array[2, -1]) == 5  # who has it, has it


def test_there_is_not_even_memory_to_begin_with():
    with pytest.raises(torch.OutOfMemoryError):
        SlotRoom(HostChunks(most=3), [PAGE], [8], [4])


def test_where_addresses_cannot_stay_a_number_cannot_change():
    room = FixedRoom([64], [3], torch.device("cpu"), "no such calls")
    assert (room.nbytes, room.slots) == (192, (3,))
    with pytest.raises(TierError, match="no such calls; restart with another --vram"):
        room.set([2])


@pytest.mark.parametrize("error", [None, TierError("no such calls")])
def test_whether_it_can_is_known_before_there_are_slots(monkeypatch, error):
    asked = []

    def chunks(device):
        asked.append(device)
        if error:
            raise error
        return HostChunks()

    monkeypatch.setattr(rooms, "CudaChunks", chunks)
    gpu = torch.device("cuda", 1)
    assert lends(gpu) == (error is None)
    assert asked == [gpu]
    made = rooms.room([PAGE], [4], [2], gpu) if error is None else None
    assert made is None or isinstance(made, SlotRoom), "and then it is so"
    assert lends(torch.device("cpu"))
