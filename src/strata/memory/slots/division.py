"""How memory for slots is divided between classes of experts of different sizes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from strata.memory.slots.errors import SlotError


def divide(
    room: int,
    sizes: Sequence[int],
    classes: Sequence[int],
    experts: int = 512,
    counts: NDArray[np.floating] | None = None,
) -> tuple[int, ...]:
    """Slots for each class that together take no more than `room` bytes.

    A miss takes time by its bytes and a slot takes room by the same bytes, so what a byte of room saves is the number
    of visits alone: experts are taken in the order of their counts, whatever their size, until the room is full.
    Without counts every class gets slots for the same share of its experts.

    Args:
        room: bytes.
        sizes: bytes of an expert, by class.
        classes: class of each layer.
        experts: of each layer.
        counts: [L, E], visits of each expert, such as `SlotCache.counts`.

    Raises:
        SlotError: the room is negative, or the numbers do not fit together.
    """
    if room < 0 or (counts is not None and counts.shape != (len(classes), experts)):
        raise SlotError(f"{room} bytes cannot be divided between {len(classes)} layers of {experts} experts each")
    size = np.repeat(np.array(sizes, np.int64)[list(classes)], experts)
    kind = np.repeat(np.array(classes), experts)
    order = np.arange(len(size)).reshape(len(classes), experts).T.ravel()  # as many of each layer as of any other
    if counts is not None:
        order = order[np.argsort(-counts.ravel()[order], kind="stable")]
    fits = np.cumsum(size[order]) <= room
    slots = np.bincount(kind[order[fits]], minlength=len(sizes))
    left = room - int(size[order[fits]].sum())
    for key in order[~fits]:  # what is left may still hold a smaller one
        if size[key] <= left:
            slots[kind[key]] += 1
            left -= int(size[key])
        if left < min(sizes):
            break
    return tuple(int(each) for each in slots)
