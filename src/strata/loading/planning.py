"""The plan that a model is loaded by. `strata plan` prints it, and the loader does what it says. No torch."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from strata.memory.budget import Machine, Plan, Rates, Sizes, Wishes, least, plan
from strata.memory.budget.choose import recommended
from strata.memory.budget.machine import rates_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strata.loading.calibration import Record
    from strata.loading.gpu import Card
    from strata.loading.ram import Ram

TABLES = {None: None, "ram": "ram", "mmap": "ssd", "direct": "ssd"}
"""Where the n-gram table is to lie by the way of reading its rows; None leaves it to the plan."""


def wishes_of(
    *,
    context: int | None = None,
    conversations: int,
    kv: str | None = None,
    drafts: bool = True,
    headroom: int | None = None,
    parked: int = 0,
    ngram: str | None = None,
) -> Wishes:
    """What settings wish of a plan.

    Args:
        context: tokens a conversation may hold; None leaves it to `planned`.
        conversations: that run at a time.
        kv: type of keys and values; None is the device's own.
        drafts: whether the draft head runs.
        headroom: bytes of VRAM to leave free; None for the plan's own.
        parked: bytes of RAM for conversations that are kept.
        ngram: how rows of the n-gram table are read; None leaves it to the plan.
    """
    return Wishes(
        context=context,
        conversations=conversations,
        kv=kv,
        drafts=drafts,
        headroom=headroom,
        parked=parked,
        table=TABLES[ngram],
    )


def machine_here(
    card: "Card | None", there: "Ram", *, vram: int | None, ram: int | None, disk: int | None = None
) -> Machine:
    """This machine, as far as it may be taken.

    Args:
        card: its GPU; None without one, or if it is not to be used.
        there: its main memory.
        vram: most bytes of the GPU's memory; None for what is free.
        ram: most bytes of main memory; None for what is available, and what this process has already.
        disk: bytes free where files go.
    """
    free = 0 if card is None else card.free if vram is None else min(card.free, vram)
    all_ = available(there, gpu=free > 0)
    most = all_ if ram is None else min(all_, ram)
    limit = there.limit if ram is None else None
    rates, lends = rates_for(free, "" if card is None else card.name), None if card is None else card.lends
    return Machine(free, most, limit, disk, rates, lends)


def available(there: "Ram", *, gpu: bool) -> int:
    """Bytes of main memory that a plan may share out: what can be taken, and what this process has for a start."""
    found = there.available + min(there.own, least.HOST if gpu else least.HOST_ALONE)
    return found if there.limit is None else min(found, there.limit)


def measured_rates(
    assumed: Rates,
    record: "Record",
    *,
    types: "Mapping[str, float]",
    disk: str,
    card: str | None,
    given: frozenset[str] = frozenset(),
) -> Rates:
    """Rates with those that `strata calibrate` measured; a data sheet's numbers give way to them, too.

    Args:
        assumed: of this machine.
        record: what was measured here.
        types: bytes of the model's experts by block type.
        disk: on which the model is.
        card: name of the GPU; empty without one, None where its memory alone is known.
        given: names of rates that somebody said; they stay.
    """
    from strata.loading.calibration.use import rates

    found = rates(record, types=types, disk=disk, card=card)
    chosen: dict[str, Any] = {name: float(f"{rate:.3g}") for name, rate in found.items() if name not in given}
    if not chosen:
        return assumed
    parts = (record.part(name) for name in ("cpu", "disk", "gpu", "link"))
    days = sorted({part.when[:10] for part in parts if part is not None})
    return replace(
        assumed,
        **chosen,
        measured=tuple(chosen),
        guessed=tuple(name for name in assumed.guessed if name not in chosen),
        when=" to ".join(days if len(days) < 3 else (days[0], days[-1])),
    )


def planned(machine: Machine, sizes: Sizes, wishes: Wishes) -> tuple[Plan, bool]:
    """The plan, and whether it chose the context.

    Raises:
        DoesNotFitError: there is none; says what is needed, what is there, and which flags to change.
        RequestError: a wish makes no sense for this model.
    """
    chosen = wishes.context is None
    if chosen:
        wishes = replace(wishes, context=recommended(machine, sizes, wishes))
    return plan(machine, sizes, wishes), chosen
