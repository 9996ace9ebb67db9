"""A context for whoever did not ask for one: long enough for most, and most of the memory for experts."""

from dataclasses import replace

from strata.memory.budget.least import settle, shortage, talk_bytes
from strata.memory.budget.machine import Machine
from strata.memory.budget.sizes import Sizes
from strata.memory.budget.wishes import Wishes

LENGTHS = tuple(1 << power for power in range(18, 11, -1))
"""Contexts to choose from, the longest first: 256K to 4K."""

PART = 8
"""Conversations take at most this part of the memory, if they can."""


def recommended(machine: Machine, sizes: Sizes, wishes: Wishes) -> int:
    """The longest context whose conversations take at most an eighth of the memory, or as long a one as fits.

    If none fits, the shortest that was tried.
    """
    machine = replace(machine, disk=None)  # whether the files fit there is no matter of the context
    room = (machine.vram or machine.ram) // PART
    lengths = [sizes.context, *(length for length in LENGTHS if length < sizes.context)]
    for length in lengths:
        wanted = replace(wishes, context=length)
        chosen = settle(machine, sizes, wanted)
        states = talk_bytes(sizes, chosen, wishes.conversations, 0)
        cells = talk_bytes(sizes, chosen, wishes.conversations, length) - states
        if cells <= room and shortage(machine, sizes, wanted) is None:
            return length
    return next((one for one in lengths if shortage(machine, sizes, replace(wishes, context=one)) is None), lengths[-1])
