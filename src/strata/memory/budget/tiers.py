"""What lies beside the VRAM: experts in RAM or on the SSD, and the n-gram table."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from strata.memory.budget import fill, least
from strata.memory.budget.account import Account, Part
from strata.memory.budget.fill import SlotClass
from strata.memory.budget.least import Settled
from strata.memory.budget.machine import Machine
from strata.memory.budget.shown import shown_bytes
from strata.memory.budget.sizes import Sizes
from strata.memory.budget.wishes import Wishes


class Arena(StrEnum):
    """Which experts lie in RAM."""

    NONE = "none"
    """None: all are in VRAM, or there is no GPU and nothing moves."""
    ALL = "all"
    COMPLEMENT = "complement"
    """Those without a slot in VRAM."""
    PART = "part"
    """Some of those; the others are on the SSD."""


class Table(StrEnum):
    """Where the n-gram table lies."""

    NONE = "none"
    VRAM = "vram"
    RAM = "ram"
    SSD = "ssd"


@dataclass(frozen=True, slots=True)
class Beside:
    """What RAM and SSD have of a model whose experts are partly in VRAM.

    Attributes:
        account: of the RAM.
        classes: experts with where they are.
        arena: which experts lie in RAM.
        table: where the n-gram table lies.
        ssd: what is read from there.
    """

    account: Account
    classes: tuple[SlotClass, ...]
    arena: Arena
    table: Table
    ssd: tuple[Part, ...]


def beside(
    machine: Machine,
    sizes: Sizes,
    wishes: Wishes,
    chosen: Settled,
    classes: Sequence[SlotClass],
    turn: Sequence[int],
    taken: Counter[int],
    table: Table,
) -> Beside:
    """Experts without a slot, and the table, in what is left of the RAM.

    Args:
        machine: what there is.
        sizes: what the model takes.
        wishes: what is wanted.
        chosen: the same with every choice made.
        classes: experts by size.
        turn: the class of each expert, in the order in which they get memory.
        taken: experts in VRAM, by class; the first of them.
        table: where it lies, as far as that is decided: in RAM only if that is wished.
    """
    count = taken.total()
    rest = fill.some_first(tuple(turn[count:]), least.fewest_held(sizes))
    held = [one.held for one in classes]
    rows = least.row_cache(sizes) if table is Table.SSD else 0
    needed = least.least_ram(machine, sizes, wishes, chosen)
    spare = machine.ram - sum(part.nbytes for part in needed)
    parked = least.parked(wishes, spare)
    room = spare - parked
    every, outside = sizes.expert_bytes, sum(held[index] for index in rest) + sizes.slack
    if not rest:
        arena, nbytes, here = Arena.NONE, 0, Counter[int]()
    elif room >= every:
        arena, nbytes, here = Arena.ALL, every, Counter(rest)
    elif room >= outside:
        arena, nbytes, here = Arena.COMPLEMENT, outside, Counter(rest)
    else:
        fitting = fill.prefix(rest, held, max(0, room - sizes.slack))
        here = Counter(rest[:fitting])
        arena, nbytes = Arena.PART, sum(held[index] * number for index, number in here.items())
        nbytes += sizes.slack if nbytes else 0
    free = wishes.table is None and arena in {Arena.NONE, Arena.ALL}
    if table is Table.SSD and free and room - nbytes >= sizes.table:
        table, rows = Table.RAM, 0
    note = {
        Arena.ALL: "all of them, those with a slot too",
        Arena.COMPLEMENT: "those without a slot in VRAM",
        Arena.PART: "of those without a slot in VRAM, what fits",
    }.get(arena, "")
    found = tuple(
        replace(one, in_vram=taken[i], in_ram=here[i], on_ssd=one.experts - taken[i] - here[i])
        for i, one in enumerate(classes)
    )
    ssd = Account.of(
        0,
        (
            Part(least.EXPERTS, sum(one.on_ssd * one.stored for one in found), "read when they are needed"),
            Part(least.TABLE, sizes.table if table is Table.SSD else 0, f"{shown_bytes(sizes.row)} a token"),
        ),
    ).parts
    account = Account.of(
        machine.ram,
        (
            Part(least.EXPERTS, nbytes, note),
            Part(least.TABLE, sizes.table if table is Table.RAM else 0),
            Part(least.TABLE_ROWS, rows, "that were read lately"),
            Part(least.PARKED, parked, "not running, but not read again"),
            Part(least.TRAVEL, least.STAGING, "pinned, on the way to the card"),
            Part(least.PROCESS, least.HOST, "interpreter, libraries, driver"),
            Part(least.SYSTEM, wishes.ram_kept(machine.ram)),
        ),
    )
    return Beside(account, found, arena, table, ssd)
