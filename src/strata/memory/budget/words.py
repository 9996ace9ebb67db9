"""A plan in words."""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from strata.memory.budget import least
from strata.memory.budget.advice import smaller_types
from strata.memory.budget.plan import Account, Arena, Part, Plan, Table, plan
from strata.memory.budget.refusal import DoesNotFitError
from strata.memory.budget.shown import shown_bytes, shown_tokens
from strata.memory.budget.speed import ACCEPTED, BEHIND, Speed, estimate

if TYPE_CHECKING:
    from strata.memory.budget.wishes import Wishes

MODEST = 32768
"""Tokens of a context that costs little; longer ones are weighed against it."""

NOTABLE = 10**9
"""Bytes of a table that are worth a sentence."""

WORTH = 1.1
"""How many times as fast something must be to be worth a sentence."""

_WAITS = {
    "dense weights": "the weights that every token reads",
    "experts in VRAM": "experts in VRAM",
    "experts in RAM": "experts that the CPU and the link bring from RAM",
    "experts on the SSD": "experts that come from the SSD",
}


def sentences(made: Plan) -> tuple[str, ...]:
    """What matters about a plan, the most important first."""
    speed = estimate(made)
    return (*_experts(made, speed), *_borrowed(made), *_table(made), *_conversations(made), *_ideas(made, speed))


def accounts(made: Plan) -> tuple[str, ...]:
    """Who gets how much, a sentence for each kind of memory; the largest parts first."""
    kinds = [("The GPU's memory", made.vram), ("RAM", made.ram)]
    return tuple(f"{name} ({shown_bytes(one.budget)}): {_parts(one)}." for name, one in kinds if one is not None)


def _parts(account: Account) -> str:
    parts = sorted(account.parts, key=lambda part: -part.nbytes)
    free = [f"{shown_bytes(account.free)} unused"] if account.free > account.budget // 1000 else []
    return ", ".join([*(f"{shown_bytes(part.nbytes)} {_said(part)}" for part in parts), *free])


def _said(part: Part) -> str:
    return part.name if part.name in {least.KEPT, least.SYSTEM} else f"for {part.name}"


def speeds(speed: Speed) -> tuple[tuple[str, str], ...]:
    """Estimates in words: (what, how fast)."""
    writing = f"about {short_range(speed.best)} tokens/s"
    if speed.drafted is not None:
        other = "without drafts" if speed.drafted >= speed.plain else "with drafts, so these stop by themselves"
        worse = min(speed.plain, speed.drafted)
        writing += f" ({short_range(worse)} {other})"
    writing += f"; at most {_round(speed.bound)}, waiting mostly for {_WAITS[speed.slowest]}"
    found = [("writing", writing)]
    if speed.prompt is not None:
        found.append(
            ("reading", f"about {_round(speed.prompt)} tokens/s of a long prompt, bound by {speed.prompt_bound}")
        )
    found.append(
        ("starting", f"about {speed.start:.0f} s until all weights are read" if speed.start >= 1 else "at once")
    )
    return tuple(found)


def assumptions(made: Plan) -> str:
    """What the estimates rest on."""
    rates = made.machine.rates
    given = {
        "cpu": f"expert kernels of the CPU {rates.cpu:g} GB/s",
        "disk": f"SSD {rates.disk:g} GB/s",
    }
    if made.device == "gpu":
        card = f"{rates.card}: " if rates.card else ""
        memory, products = f"{rates.vram:g} GB/s", f"{rates.tflops:g} TFLOPS"
        together = [("vram" in some, "tflops" in some) for some in (rates.measured, rates.guessed)]
        if all(one == other for one, other in together):
            gpu = {"vram": f"{card}{memory} and {products}"}
        else:
            gpu = {"vram": f"the GPU's memory {memory}", "tflops": f"{card}{products}"}
        given = {**gpu, "link": f"link {rates.link:g} GB/s", **given}
    measured = ", ".join(text for name, text in given.items() if name in rates.measured)
    guessed = ", ".join(text for name, text in given.items() if name in rates.guessed)
    known = ", ".join(text for name, text in given.items() if name not in {*rates.guessed, *rates.measured})
    parts = [
        f"given: {known}" if known else "",
        f"measured here on {rates.when}: {measured}" if measured else "",
        f"assumed: {guessed}" if guessed else "",
    ]
    drafts = f", {ACCEPTED:g} tokens of a window with drafts" if made.drafts and made.device == "gpu" else ""
    behind = shown_tokens(min(BEHIND, made.context))
    return f"{'; '.join(part for part in parts if part)}; ordinary text{drafts}, behind {behind} tokens"


def _experts(made: Plan, speed: Speed | None) -> Iterator[str]:
    total = made.sizes.experts
    if made.device == "cpu":
        yield "There is no GPU: everything is computed on the CPU, from weights in RAM."
        if made.arena is Arena.PART:
            yield _away(made)
        return
    if not total:
        return
    if made.resident:
        yield f"All {total:,} experts are in VRAM: a token waits for nothing outside the card."
        return
    hits = f", where a token finds {_percent(speed.hits)} of those it goes to" if speed else ""
    yield (
        f"{made.slots:,} of {total:,} experts ({100 * made.share:.1f}%) are in VRAM{hits}; CPU and link share the "
        "others."
    )
    if made.arena is Arena.ALL:
        yield "RAM holds all of them, so one that loses its slot is still there."
    elif made.arena is Arena.COMPLEMENT:
        yield (
            "RAM holds those without a slot; one that loses its slot has to be brought back, so the cache learns more "
            "slowly."
        )
    elif made.arena is Arena.PART:
        yield _away(made)


def _borrowed(made: Plan) -> Iterator[str]:
    if made.lent:
        slots = -(-made.lent * made.slots // made.expert_vram)
        yield (
            f"A prompt of more than {made.short:,} tokens borrows up to {shown_bytes(made.lent)} from experts while it "
            f"is read ({slots:,} slots), for passes of up to {made.rows:,} tokens; they come back after it"
            f"{'' if made.machine.lends else ', if the GPU has a driver with virtual memory, as nearly all are'}."
        )
    elif made.vram is not None and not made.resident and made.machine.lends is False and _choice(made):
        yield (
            "The driver of this GPU has no virtual memory, so a long prompt cannot borrow from experts: passes of up "
            f"to {made.rows:,} tokens have {shown_bytes(made.vram.bytes_of(least.PASS))} all the time."
        )


def _choice(made: Plan) -> bool:
    """Whether passes over prompts could be longer than a short prompt."""
    return made.sizes.work.most > max(made.sizes.work.least, made.sizes.work.short)


def _away(made: Plan) -> str:
    count = sum(one.on_ssd for one in made.classes)
    nbytes = sum(part.nbytes for part in made.ssd if part.name == least.EXPERTS)
    return f"RAM is too small for {count:,} experts ({shown_bytes(nbytes)}): they are read from the SSD when needed."


def _table(made: Plan) -> Iterator[str]:
    if made.sizes.table < NOTABLE:
        return
    if made.table is Table.SSD:
        yield (
            f"The n-gram table ({shown_bytes(made.sizes.table)}) stays on the SSD: a token reads "
            f"{shown_bytes(made.sizes.row)} of it, asked for as soon as the token is known. A turning disk is too slow "
            "for that."
        )
    elif made.table is Table.RAM:
        yield f"There is room in RAM for the n-gram table ({shown_bytes(made.sizes.table)}) as well."


def _conversations(made: Plan) -> Iterator[str]:
    if made.conversations == 1 and made.vram is not None:
        try:
            two = plan(made.machine, made.sizes, replace(made.wishes, conversations=2), work=made.work)
            eight = plan(made.machine, made.sizes, replace(made.wishes, conversations=8), work=made.work)
        except DoesNotFitError:
            yield "One conversation runs at a time; eight would not fit (`strata serve` takes --conversations)."
            return
        if two.vram and eight.vram and made.slots > eight.slots:
            more = eight.vram.bytes_of(least.TALK) - made.vram.bytes_of(least.TALK)
            yield (
                f"One conversation runs at a time. Eight (--conversations 8) take {shown_bytes(more)} more, which "
                "leaves "
                f"{eight.slots:,} experts in VRAM."
            )
    elif made.cells < made.conversations * made.context:
        yield (
            f"{made.conversations} conversations run at a time, of together {made.cells:,} tokens; when they outgrow "
            "that, the "
            "youngest waits in RAM."
        )
    if made.conversations > 1 and made.vram is not None and not made.resident:
        one = plan(made.machine, made.sizes, replace(made.wishes, conversations=1), work=made.work)
        if one.slots > made.slots:
            yield (
                f"They take memory from experts: with --conversations 1 there would be {one.slots:,} experts in VRAM."
            )


def _ideas(made: Plan, speed: Speed | None) -> Iterator[str]:
    """Changes that would make it faster by a tenth or more."""
    if speed is None:
        return
    changes: list[tuple[str, Wishes]] = []
    if made.context > MODEST:
        changes.append((f"--context {shown_tokens(MODEST)}", replace(made.wishes, context=MODEST)))
    smaller = smaller_types(made.sizes, made.kv, gpu=made.device == "gpu")
    if smaller:
        changes.append((f"--kv {smaller[0]}", replace(made.wishes, kv=smaller[0])))
    for flag, wishes in [] if made.resident or made.device == "cpu" else changes:
        other = plan(made.machine, made.sizes, wishes, work=made.work)
        found = estimate(other)
        if found and found.best[0] > WORTH * speed.best[0]:
            yield (
                f"With {flag} there would be {other.slots:,} experts in VRAM, and about {short_range(found.best)} "
                "tokens/s."
            )
    if made.arena is Arena.PART:
        lacking = sum(part.nbytes for part in made.ssd if part.name == least.EXPERTS)
        machine = replace(made.machine, ram=made.machine.ram + lacking * 17 // 16)
        found = estimate(plan(machine, made.sizes, made.wishes, work=made.work))
        if found and found.best[0] > WORTH * speed.best[0]:
            yield (
                f"With {shown_bytes(machine.ram)} of RAM no expert would be read from the SSD: about "
                f"{short_range(found.best)} "
                "tokens/s. A smaller file does the same."
            )


def short_range(pair: tuple[float, float]) -> str:
    """A range of estimates in two digits."""
    low, high = (_round(number) for number in sorted(pair))
    return low if low == high else f"{low} to {high}"


def _round(number: float) -> str:
    """Two digits: an estimate has no more."""
    if number >= 100:
        digits = 10 ** (len(str(int(number))) - 2)
        return f"{round(number / digits) * digits:,}"
    return f"{number:.0f}" if number >= 10 else f"{number:.1f}"


def _percent(pair: tuple[float, float]) -> str:
    low, high = (round(100 * number) for number in pair)
    return f"about {low}%" if low == high else f"{low} to {high}%"
