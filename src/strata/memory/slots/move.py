"""What a cache of experts says is to be done, in plain values."""

from typing import NamedTuple


class Move(NamedTuple):
    """One expert into one slot.

    Attributes:
        layer: of the expert that comes in.
        expert: its number within the layer.
        slot: where to, counted within the layer's class of sizes.
        out: (layer, expert) that lies there until then; None if nothing does.
        generation: of the slot's contents once this move has begun; no two moves into a slot share one.
        gain: visits a window that the newcomer is ahead by.
    """

    layer: int
    expert: int
    slot: int
    out: tuple[int, int] | None = None
    generation: int = 1
    gain: float = 0.0


class Source(NamedTuple):
    """What a slot holds: enough to hold its bytes against the file's.

    Attributes:
        slot: within its class.
        layer: of the expert that lies there.
        expert: its number within the layer.
        generation: of the slot's contents.
    """

    slot: int
    layer: int
    expert: int
    generation: int


class Resized(NamedTuple):
    """What came of another number of slots, all of one class.

    Attributes:
        given: slots that are the cache's no longer. Their memory may go once every window is over that began before.
        waiting: slots that are to be given back too, but are being copied into. `landed` and `failed` give them back.
        taken: new slots; they are empty.
        lost: (layer, expert) that lay in a slot that goes: misses from now on.
    """

    given: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()
    taken: tuple[int, ...] = ()
    lost: tuple[tuple[int, int], ...] = ()
