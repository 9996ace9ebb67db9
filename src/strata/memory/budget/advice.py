"""The smallest changes that make a model fit."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from strata.memory.budget.least import settle, shortage
from strata.memory.budget.machine import Machine
from strata.memory.budget.refusal import Shortage
from strata.memory.budget.shown import shown_bytes, shown_tokens
from strata.memory.budget.sizes import Sizes
from strata.memory.budget.wishes import Wishes

STEP, SHORTEST = 1024, 1024
"""Tokens: contexts that are proposed are multiples of the first, and at least the second."""

LEAST_KEPT = 256_000_000
"""Bytes of VRAM below which leaving less free is no advice."""


def largest(low: int, high: int, fits: Callable[[int], bool]) -> int | None:
    """The largest number from `low` to `high` that fits, where whatever is below one that fits does; None if none."""
    if low > high or not fits(low):
        return None
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def changes(machine: Machine, sizes: Sizes, wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """Flags with the wishes they stand for, each of which would make the model fit; the smallest of each kind.

    Where no single one would, all that help are given together.
    """
    single = list(_single(machine, sizes, wishes))
    yield from single
    if not single:
        yield from _together(machine, sizes, wishes)


def advice(machine: Machine, sizes: Sizes, wishes: Wishes, short: Shortage) -> list[str]:
    """What to do, flags first."""
    found = [flags for flags, _ in changes(machine, sizes, wishes)]
    if short.where == "the disk":
        return [f"free {shown_bytes(short.need - short.free)} there"]
    if short.where == "VRAM":
        alone = shortage(replace(machine, vram=0), sizes, replace(wishes, kv=None)) is None
        cpu = ["the CPU alone (--device cpu)"] if alone else []
        return [*found, *cpu, "a smaller file", f"{shown_bytes(short.need)} of free VRAM"]
    return [*found, "a smaller file", f"{shown_bytes(short.need - short.free)} more RAM"]


def _fits(machine: Machine, sizes: Sizes, wishes: Wishes) -> bool:
    return shortage(machine, sizes, wishes) is None


def _single(machine: Machine, sizes: Sizes, wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    yield from _context(machine, sizes, wishes)
    chosen = settle(machine, sizes, wishes)
    for kv in smaller_types(sizes, chosen.kv, gpu=chosen.gpu):
        changed = replace(wishes, kv=kv)
        if _fits(machine, sizes, changed):
            yield f"--kv {kv}", changed
            break
    fewer = largest(
        1, wishes.conversations - 1, lambda count: _fits(machine, sizes, replace(wishes, conversations=count))
    )
    if fewer is not None:
        yield f"--conversations {fewer}", replace(wishes, conversations=fewer)
    if chosen.drafts and chosen.gpu:
        changed = replace(wishes, drafts=False)
        if _fits(machine, sizes, changed):
            yield "--drafts 0", changed
    kept = wishes.vram_kept(machine.vram)
    if chosen.gpu and kept > LEAST_KEPT:
        changed = replace(wishes, headroom=LEAST_KEPT)
        if _fits(machine, sizes, changed):
            yield "--headroom 256MB", changed


def _context(machine: Machine, sizes: Sizes, wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    context = settle(machine, sizes, wishes).context
    steps = largest(
        -(-SHORTEST // STEP),
        (context - 1) // STEP,
        lambda count: _fits(machine, sizes, replace(wishes, context=count * STEP)),
    )
    if steps is not None:
        yield f"--context {shown_tokens(steps * STEP)}", replace(wishes, context=steps * STEP)


def smaller_types(sizes: Sizes, kv: str, *, gpu: bool) -> list[str]:
    """Types of less bytes, the nearest first."""
    pages = (sizes.cells if gpu or sizes.host_cells is None else sizes.host_cells).pages
    return sorted((name for name in pages if pages[name] < pages[kv]), key=lambda name: -pages[name])


def _together(machine: Machine, sizes: Sizes, wishes: Wishes) -> Iterator[tuple[str, Wishes]]:
    """Everything that helps at once, with the longest context that then fits."""
    chosen = settle(machine, sizes, wishes)
    changed = wishes
    flags: list[str] = []
    types = smaller_types(sizes, chosen.kv, gpu=chosen.gpu)
    if types:
        changed, flags = replace(changed, kv=types[-1]), [*flags, f"--kv {types[-1]}"]
    if changed.conversations > 1:
        changed, flags = replace(changed, conversations=1), [*flags, "--conversations 1"]
    for drafts in (True, False):
        if not drafts and chosen.drafts and chosen.gpu:
            changed, flags = replace(changed, drafts=False), [*flags, "--drafts 0"]
        for shown, found in _context(machine, sizes, changed):
            yield " ".join([*flags, shown]), found
            return
        if _fits(machine, sizes, changed):
            yield " ".join(flags), changed
            return
