"""When a plan meets the machine: what turned out to be free, and memory that could not be had."""

from dataclasses import replace

from strata.memory.budget import least
from strata.memory.budget.plan import Plan, plan
from strata.memory.budget.refusal import DoesNotFitError, Shortage
from strata.memory.budget.shown import shown_bytes


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


def retry(made: Plan) -> Plan:
    """The next smaller plan after memory that this one counts on could not be had; at most some forty of them.

    Slots give way first, an eighth of them at a time, down to the fewest there can be. Nothing else can: it is needed.

    Raises:
        DoesNotFitError: this was the smallest.
    """
    ring = least.ring_bytes(made.sizes)
    if made.vram is None or made.expert_vram <= ring:
        account = made.ram if made.vram is None else made.vram
        short = Shortage("RAM" if made.vram is None else "VRAM", account.parts, account.budget)
        text = (
            f"{made.sizes.name} does not fit after all: {shown_bytes(short.free)} of {short.where} seemed to be free, "
            "but "
            f"not even {shown_bytes(short.need - account.bytes_of(least.KEPT))} could be had with the fewest experts "
            "there"
        )
        flags = ["a shorter --context", *(["--drafts 0"] if made.drafts else []), "closing other programs there"]
        raise DoesNotFitError(text, short, flags)
    fewer = max(ring, made.expert_vram - max(made.expert_vram // 8, min(one.slot for one in made.classes)))
    return plan(made.machine, made.sizes, replace(made.wishes, experts=fewer), work=made.work)
