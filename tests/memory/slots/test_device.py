"""Whatever windows, copies and faults do, a window finds in a slot what its table says (cases N03 and N05)."""

import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from strata.memory.slots import Move, Rule, SlotCache

L, E, USED = 3, 8, 4
EAGER = Rule(decay=0.5, share=0.0, margin=0.0)


@dataclass
class Device:
    """Slots with bytes in them, windows that look experts up in the table that they began with, and copies.

    Attributes:
        held: bytes of each slot: the expert that was copied in last, whole or half.
        windows: table of each window that is not over.
        copies: moves that have begun, and the windows that were not over then.
        leaving: slots that were given back, and the windows that were not over then.
    """

    held: dict[int, tuple | str] = field(default_factory=dict)
    windows: dict[int, np.ndarray] = field(default_factory=dict)
    copies: list[tuple[Move, set[int]]] = field(default_factory=list)
    leaving: list[tuple[int, set[int]]] = field(default_factory=list)

    def read(self, window: int, layer: int, expert: int):
        """What a window computes with: None for a miss."""
        slot = self.windows[window][layer, expert]
        return None if slot < 0 else self.held[slot]


@pytest.mark.parametrize("slots", [0, 1, 3, 4, 5, 6, 8, 23, 24, 30])
@pytest.mark.parametrize("rows", [1, 3, 16])
def test_no_window_meets_the_wrong_expert(slots, rows) -> None:
    random_ = random.Random(100 * slots + rows)
    cache = SlotCache([10], [0] * L, [slots], experts=E, rule=EAGER)
    device, most_held = Device(), 0
    for step in range(200):
        device.windows[step] = cache.slot_of.copy()
        wanted = [(a, e) for a in range(L) for e in random_.sample(range(E), min(E, USED + random_.randrange(rows)))]
        if random_.random() < 0.1:
            resized = cache.resize(0, random_.choice([0, slots // 2, slots]))
            device.leaving = [(slot, before) for slot, before in device.leaving if slot not in resized.taken]
            device.leaving += [(slot, set(device.windows)) for slot in resized.given]
        cache.seen(np.array(wanted))
        for move in cache.moves(random_.choice([0, 1, 4, 99])):
            cache.begin(move)
            device.copies.append((move, set(device.windows)))
        for window in list(device.windows):
            for key in wanted if window == step else []:
                found = device.read(window, *key)
                assert found in (None, key), f"window {window} reads {found} for {key}"
            if random_.random() < 0.6:
                for layer in range(L):
                    for expert in range(E):
                        assert device.read(window, layer, expert) in (None, (layer, expert))
                del device.windows[window]
        for copy in list(device.copies):
            move, before = copy
            if before & set(device.windows) or random_.random() < 0.3:
                continue  # a window that began earlier may still read the slot, or the copy takes its time
            device.copies.remove(copy)
            if random_.random() < 0.2:
                device.held[move.slot] = ("half of", move.layer, move.expert)
                stays = cache.failed(move)
            else:
                device.held[move.slot] = (move.layer, move.expert)
                stays = cache.landed(move)
            if not stays:
                device.leaving.append((move.slot, set()))
        for slot, before in device.leaving:
            if not before & set(device.windows):
                device.held[slot] = "memory of somebody else"
        most_held = max(most_held, cache.held[0])
    assert most_held >= min(slots, L * E) * 0.6


def test_busy_experts_stay_however_little_they_count() -> None:
    cache = SlotCache([10], [0], [2], experts=4, rule=EAGER)
    for move in cache.moves(2):
        cache.begin(move)
        cache.landed(move)
    hot = np.array([[0, 2], [0, 3]])
    for _ in range(5):
        cache.seen(hot)
    assert {move.out for move in cache.moves(2, busy=np.array([[0, 0]]))} == {(0, 1)}
    cache.seen(hot)
    assert cache.moves(2, busy=np.array([[0, 0], [0, 1]])) == []
    cache.seen(hot)
    assert {move.out for move in cache.moves(2)} == {(0, 0), (0, 1)}


def test_a_wrong_slot_is_found_by_its_source_emptied_and_filled_again() -> None:  # case N05
    cache = SlotCache([10], [0] * L, [6], experts=E)
    file = {(layer, expert): f"bytes of {layer}, {expert}" for layer in range(L) for expert in range(E)}
    device = {}
    for number, move in enumerate(cache.moves(6)):
        cache.begin(move)
        device[move.slot] = file[move.layer, move.expert] if number != 3 else "something else"
        cache.landed(move)
    wrong = [s for s in cache.sources(0) if device[s.slot] != file[s.layer, s.expert]]
    assert len(wrong) == 1
    (source,) = wrong
    assert cache.drop(source.layer, source.expert) == source.slot
    assert cache.slot_of[source.layer, source.expert] == -1
    (again,) = cache.moves(6)
    assert (again.layer, again.expert, again.slot) == (source.layer, source.expert, source.slot)
    assert again.generation == source.generation + 1


def test_those_that_count_most_come_before_what_goes() -> None:
    cache = SlotCache([10], [0], [5], experts=5, rule=replace(EAGER, decay=1.0))
    for move in cache.moves(5):
        cache.begin(move)
        cache.landed(move)
    in_slot = [source.expert for source in cache.sources(0)]
    for slot, times in enumerate((3, 1, 4, 5, 2)):
        for _ in range(times):
            cache.seen(np.array([[0, in_slot[slot]]]))
    assert cache.gather(0, 2) == [(3, 1), (2, 0)]  # 5 for 1, 4 for 3; with 2 nobody changes
    cache.resize(0, 2)
    assert [source.expert for source in cache.sources(0)] == [in_slot[2], in_slot[3]]


def test_two_equals_do_not_change_places() -> None:
    cache = SlotCache([10], [0], [1], experts=2)
    (move,) = cache.moves(1)
    cache.begin(move)
    cache.landed(move)
    moved = 0
    for window in range(100):
        cache.seen(np.array([[0, window % 2]]))
        for move in cache.moves(1):
            cache.begin(move)
            cache.landed(move)
            moved += 1
    assert moved <= 1


def test_what_was_not_missed_is_considered_only_while_there_are_empty_slots() -> None:
    cache = SlotCache([10], [0], [4], experts=8, rule=EAGER)
    for move in cache.moves(4):
        cache.begin(move)
        cache.landed(move)
    for _ in range(4):
        cache.seen(np.array([[0, 6], [0, 7]]))
    assert cache.moves(0) == []
    cache.resize(0, 2)
    assert cache.moves(4) == [], "the two slots that went were no empty ones of ours"
    cache.resize(0, 3)
    assert [move.expert for move in cache.moves(1)] == [6]
