"""A plan for people."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from strata.cli.table import table
from strata.memory.budget import Account, Plan, estimate
from strata.memory.budget.shown import shown_bytes, shown_tokens
from strata.memory.budget.words import assumptions, sentences, short_range, speeds

if TYPE_CHECKING:
    from strata.cli.plan.command import Outcome
    from strata.cli.plan.machine import Found
    from strata.config import Resolved

WIDTH = 100
BAR = 24

SHOWN = 6
"""Ranges of layers that are listed."""


def as_text(outcome: "Outcome", found: "Found", resolved: "Resolved") -> str:
    """The whole plan."""
    made = outcome.plan
    assert made is not None
    parts = [_head(outcome, found, made)]
    if made.vram is not None:
        parts.append(_account("Memory of the GPU", made.vram))
    parts.append(_account("RAM", made.ram))
    if made.ssd:
        total = sum(part.nbytes for part in made.ssd)
        parts.append(_lines("Read from the SSD", total, [(one.name, one.nbytes, one.note) for one in made.ssd], None))
    if len(made.classes) > 1:
        parts.append(_classes(made))
    speed = estimate(made)
    if speed is not None:
        lines = [line for what, text in speeds(speed) for line in _wrapped(text, f"  {what:<10}")]
        parts.append(
            "\n".join(["Speed, estimated and not measured", *lines, *_wrapped(f"({assumptions(made)})", "  ")]) + "\n"
        )
    told = [line for text in sentences(made) for line in _wrapped(text, "- ")]
    # One line, however long: a command is copied whole.
    parts.append("\n".join([*told, f"- {_run(outcome, made, resolved)}"]) + "\n")
    return "\n".join(parts)


def comparison(outcomes: Sequence["Outcome"], found: "Found") -> str:
    """All files of one model side by side."""
    rows = []
    for one in outcomes:
        file, made = one.subject.known, one.plan
        assert file is not None
        if made is None:
            assert one.refusal is not None
            short = one.refusal.shortage
            lacking = f"needs {shown_bytes(short.need)} of {short.where.partition(' (')[0]}"
            rows.append((file.quant, shown_bytes(file.total), "no", "", "", "", "", lacking))
            continue
        speed = estimate(made)
        away = sum(part.nbytes for part in made.ssd if part.name == "experts")
        rows.append((
            file.quant, shown_bytes(file.total), "yes", shown_tokens(made.context),
            f"{100 * made.share:.0f}%" if made.vram else "-", shown_bytes(away) if away else "none",
            short_range(speed.best) if speed else "",
            short_range((speed.prompt, speed.prompt)) if speed and speed.prompt else "",
        ))  # fmt: skip
    head = ("Quant", "Download", "Fits", "Context", "In VRAM", "From SSD", "Tokens/s", "Prompt tokens/s")
    first = outcomes[0].subject.known
    assert first is not None
    publishers = ", ".join(sorted({one.subject.known.publisher for one in outcomes if one.subject.known}))
    made = next((one.plan for one in outcomes if one.plan), None)
    notes = [
        f"In VRAM and from SSD are experts. Sizes as stated by others ({publishers}); speeds are estimates"
        + (f" ({assumptions(made)})." if made else "."),
        f"`strata plan {first.model}:QUANT` with the same options shows one of them in full.",
    ]
    return "\n".join([
        f"{first.title} on {_machine(found)}\n",
        table(head, rows, right=(1, 4, 5, 6, 7)),
        "\n".join(line for note in notes for line in _wrapped(note, "")) + "\n",
    ])  # fmt: skip


def _machine(found: "Found") -> str:
    machine = found.machine
    name = f" ({found.vram_from})" if found.vram_from not in {"given", "here"} and machine.vram else ""
    card = f"a GPU with {shown_bytes(machine.vram)} free{name}" if machine.vram else "a machine without a GPU"
    limit = f", the limit of this container or service being {shown_bytes(machine.limit)}" if machine.limit else ""
    ram = f"{shown_bytes(machine.ram)} of RAM" + (" available" if found.ram_from != "given" else "")
    return f"{card}{' and' if machine.vram else ', with'} {ram}{limit}"


def _head(outcome: "Outcome", found: "Found", made: Plan) -> str:
    sizes = outcome.subject.sizes
    text = f"{sizes.name} on {_machine(found)}: it fits.\n"
    if outcome.subject.known is not None:
        text += f"A download of {shown_bytes(sizes.files)}; {sizes.about}.\n"
        if outcome.subject.known.note:
            text += f"Not stated: {outcome.subject.known.note}.\n"
    several = f"{made.conversations} conversations" if made.conversations > 1 else "A conversation"
    chosen = ""
    if outcome.chosen:
        chosen = ", all that the model can" if made.context == sizes.context else ", chosen for this machine"
    return text + f"{several} of up to {shown_tokens(made.context)} tokens{chosen}.\n"


def _account(title: str, account: Account) -> str:
    rows = [(part.name, part.nbytes, part.note) for part in account.parts]
    return _lines(
        title,
        account.budget,
        [*rows, *([("unused", account.free, "")] if account.free > account.budget // 1000 else [])],
        account.budget,
    )


def _lines(title: str, total: int, rows: Sequence[tuple[str, int, str]], budget: int | None) -> str:
    """A title with a sum, and rows with amounts, bars and notes."""
    width = max(len(name) for name, _, _ in rows) + 2
    width = max(width, len(title) - 2, 20)
    text = f"{title:<{width + 2}}{shown_bytes(total):>8}\n"
    for name, nbytes, note in rows:
        bar = "" if budget is None else f"  {_bar(nbytes, budget):<{BAR}}"
        text += f"  {name:<{width}}{shown_bytes(nbytes):>8}{bar}  {note}".rstrip() + "\n"
    return text


def _classes(made: Plan) -> str:
    """Slots by size: layers differ by quantisation."""
    rows = [
        (
            shown_bytes(one.slot),
            _ranges(one.layers),
            *(f"{n:,}" for n in (one.experts, one.in_vram, one.in_ram, one.on_ssd)),
        )
        for one in made.classes
    ]
    head = ("Expert's slot", "Layers", "Experts", "In VRAM", "Only in RAM", "On SSD")
    return table(head, rows, right=(0, 2, 3, 4, 5))


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers in rising order as ranges: 0-2, 4."""
    starts = [n for n in numbers if n - 1 not in numbers]
    ends = [n for n in numbers if n + 1 not in numbers]
    found = [f"{a}-{b}" if b > a else str(a) for a, b in zip(starts, ends, strict=True)]
    return ", ".join(found) if len(found) <= SHOWN else f"{', '.join(found[:SHOWN])} and {len(found) - SHOWN} more"


def _bar(part: int, whole: int) -> str:
    """A bar in eighths of a cell."""
    eighths = round(8 * BAR * part / max(1, whole))
    full, rest = divmod(max(1, eighths), 8)
    return "█" * full + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[rest]


def _run(outcome: "Outcome", made: Plan, resolved: "Resolved") -> str:
    """How to have it so."""
    flags = []
    if (outcome.chosen and made.context < made.sizes.context) or resolved.origins["context"].source == "flag":
        flags.append(f"--context {shown_tokens(made.context)}")
    if made.wishes.kv is not None:
        flags.append(f"--kv {made.wishes.kv}")
    for name in ("conversations", "headroom", "ngram", "vram", "ram", "drafts", "cache_ram"):
        value = getattr(resolved.settings, name)
        if resolved.origins[name].source == "flag" and value is not None:
            flags.append(f"--{name.replace('_', '-')} {_said(name, value)}")
    if outcome.subject.known is not None:
        known = outcome.subject.known
        return (
            f"To have it: `strata pull OWNER/NAME:{known.quant}`, with its repository on a hub; "
            f"{known.publisher} makes it."
        )
    return f"To run it so: `strata serve {' '.join([outcome.subject.run, *flags])}`."


def _said(name: str, value: object) -> str:
    """A setting as its flag takes it."""
    return _amount(value) if name in {"vram", "ram", "headroom"} and isinstance(value, int) else f"{value}"


def _amount(count: int) -> str:
    for size, unit in ((1 << 30, "GiB"), (10**9, "GB"), (1 << 20, "MiB"), (10**6, "MB")):
        if count >= size and count % size == 0:
            return f"{count // size}{unit}"
    return str(count)


def _wrapped(text: str, mark: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_on_hyphens=False)
