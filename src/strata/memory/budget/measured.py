"""When a plan meets the machine: what was really taken, and memory that could not be had."""

from dataclasses import dataclass, replace

from strata.memory.budget import least
from strata.memory.budget.plan import Plan, plan
from strata.memory.budget.refusal import DoesNotFitError, Shortage
from strata.memory.budget.shown import shown_bytes

ALIKE = 64 << 20
"""Bytes up to which nobody speaks of a difference."""

LESS = 4
"""The part of the experts that gives way where memory could not be had."""

FEW = 50
"""The part of all experts from which none are tried any more: each time everything is loaded again."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What a plan came to.

    Attributes:
        where: "VRAM" or "RAM".
        more: bytes that were taken beyond the planned; below 0 if it was less.
        free: bytes of the budget that are left.
        wished: bytes that were to be left.
        fewer: experts that would have to leave VRAM for so many to be left.
    """

    where: str
    more: int
    free: int
    wished: int
    fewer: int = 0

    @property
    def told(self) -> bool:
        """Whether the difference is worth a word."""
        return abs(self.more) > ALIKE

    @property
    def short(self) -> bool:
        """Whether less is left than was to be."""
        return self.free < self.wished

    def __str__(self) -> str:
        if not self.told:
            return f"Measured after loading: {shown_bytes(max(0, self.free))} of {self.where} are left, as planned."
        much = shown_bytes(abs(self.more))
        if self.more < 0:
            return (
                f"Measured after loading: {much} of {self.where} less were taken than planned; they stay free "
                f"({shown_bytes(self.free)} in all)."
            )
        text = f"Measured after loading: {much} of {self.where} more were taken than planned; "
        if not self.short:
            return f"{text}{shown_bytes(self.free)} are still left, more than was to be kept free."
        flag = "--headroom" if self.where == "VRAM" else "a smaller --ram"
        text += f"{shown_bytes(max(0, self.free))} are left instead of {shown_bytes(self.wished)}"
        fewer = f", that is with {self.fewer:,} experts fewer in VRAM" if self.fewer else ""
        value = f" {-(-(self.wished + self.more) // 10**6)}MB" if flag == "--headroom" else ""
        return f"{text}. {flag}{value} keeps as much free as was meant{fewer}."


def measured(made: Plan, free_after: int) -> Plan:
    """The plan corrected by what the card says after everything was touched for the first time.

    What scratch memory takes is the one number that is assumed: modules, captured graphs, and what allocators round
    up. The difference is put there, and experts get what is then left; the bytes to keep free stay free.

    Args:
        made: what was followed, slots included.
        free_after: bytes of VRAM that are free with all of it in place.

    Raises:
        DoesNotFitError: without the least number of slots still not enough is free.
    """
    if made.vram is None:
        return made
    expected = made.vram.free + made.vram.bytes_of(least.KEPT)
    work = made.vram.bytes_of(least.WORK) + expected - free_after
    return plan(made.machine, made.sizes, made.wishes, work=max(0, work))


def compared(made: Plan, free_after: int) -> Taken:
    """What was really taken beside the plan; nothing changes.

    Args:
        made: what was followed.
        free_after: bytes of the budget, of VRAM or, without a card, of RAM, that are free with all of it in place.
    """
    if made.vram is None:
        wished = made.ram.bytes_of(least.SYSTEM)
        return Taken("RAM", made.ram.free + wished - free_after, free_after, wished)
    wished = made.vram.bytes_of(least.KEPT)
    try:
        fewer = max(0, made.slots - measured(made, free_after).slots)
    except DoesNotFitError:
        fewer = made.slots
    return Taken("VRAM", made.vram.free + wished - free_after, free_after, wished, fewer)


def retry(made: Plan) -> Plan:
    """The next smaller plan after memory that this one counts on could not be had; at most some fifteen of them.

    Experts give way, a quarter of their bytes at a time; from a fiftieth of all on, all that can. Nothing else can give
    way: it is needed.

    Raises:
        DoesNotFitError: this was the smallest.
    """
    if made.vram is None:
        account, where = made.ram, "RAM"
        had, fewest, every = _experts(made), least.fewest_stored(made.sizes), made.sizes.expert_bytes
    else:
        account, where = made.vram, "VRAM"
        had, fewest, every = made.expert_vram, least.fewest_slots(made.sizes), made.sizes.slot_bytes
    wanted = max(fewest, had - -(-had // LESS))
    if (wanted - fewest) * FEW < every:
        wanted = fewest
    if had > fewest:
        smaller = plan(made.machine, made.sizes, replace(made.wishes, experts=wanted), work=made.work)
        if _experts(smaller) < had:
            return smaller
    short = Shortage(where, account.parts, account.budget)
    kept = account.bytes_of(least.KEPT) + account.bytes_of(least.SYSTEM)
    text = (
        f"{made.sizes.name} does not fit after all: {shown_bytes(short.free)} of {where} seemed to be free, but not "
        f"even {shown_bytes(short.need - kept)} could be had with the fewest experts there"
    )
    flags = ["a shorter --context", *(["--drafts 0"] if made.drafts else []), "closing other programs there"]
    raise DoesNotFitError(text, short, flags)


def _experts(made: Plan) -> int:
    return made.ram.bytes_of(least.EXPERTS) if made.vram is None else made.expert_vram
