"""The plan: who gets how much of the machine's memory.

What must be there comes first (`least`): if that does not fit, there is no plan. The rest is divided so that more
memory never holds fewer experts. Of the VRAM that is left, experts get the most: they decide the speed. A sixth goes
to prompt passes until a short prompt is one of them (where all experts are in VRAM, until they are as long as makes
sense then), and an eighth to further conversations until each has an eighth of the context. Where experts are left
over, a part is for those on their way. If all experts are in VRAM with that, the n-gram table follows, and half of what
then is left is for further conversations; before both, a conversation that runs alone and without drafts gets a place
more for its states, into which its next window is launched ahead. RAM takes what has no slot: all experts if it can, so
that one that loses its slot is still there; else those without a slot; else the first of them, and the SSD has the
rest.

A long prompt comes seldom, and takes 1.4 GB while it is read. So what its passes need beyond a short one's is nobody's:
it is borrowed from slots, half of them at most, which come back when it is read. Where the driver cannot take slots
away, passes have their own: a sixth of what is left until they are as long as can be. Each moves all missing experts,
so one of 8,192 tokens for eight of 1,024 is worth the 6% of the slots that it costs a card of 24 GB.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from strata.memory.budget import fill, least
from strata.memory.budget.account import Account, Part
from strata.memory.budget.advice import advice
from strata.memory.budget.fill import SlotClass
from strata.memory.budget.least import Settled, settle, shortage, talk_bytes
from strata.memory.budget.machine import Machine
from strata.memory.budget.refusal import DoesNotFitError
from strata.memory.budget.shown import shown_bytes, shown_tokens
from strata.memory.budget.sizes import Sizes
from strata.memory.budget.tiers import Arena, Table, beside
from strata.memory.budget.wishes import Wishes

LENT = 2
"""Of the bytes of slots, one in so many is lent to a long prompt at most."""

__all__ = ["Account", "Arena", "Part", "Plan", "Table", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """Who gets how much.

    Attributes:
        machine, sizes, wishes: what it was made for.
        device: "gpu" or "cpu".
        context: tokens a conversation may hold.
        conversations: that run at a time.
        cells: tokens that all of them together may hold.
        kv: type of keys and values.
        drafts: whether the draft head runs.
        rows: tokens of the longest prompt pass; 0 on the CPU.
        short: tokens of the longest one that borrows nothing.
        lent: bytes of slots that are lent to the longest.
        ring: whether the ring of long prompts is among them.
        classes: experts by size, with how many of each lie where. `in_vram` is the number of slots.
        arena: which experts lie in RAM.
        table: where the n-gram table lies.
        vram: what VRAM goes to; None without a card.
        ram: what RAM goes to.
        ssd: bytes that are read from the SSD while the model runs, by what they are.
        work: bytes that scratch memory was measured to take; None for the assumed.
        ahead: there is a place for the states of a window that is launched ahead, beside a single conversation's two.
    """

    machine: Machine = field(repr=False)
    sizes: Sizes = field(repr=False)
    wishes: Wishes = field(repr=False)
    device: str
    context: int
    conversations: int
    cells: int
    kv: str
    drafts: bool
    rows: int
    classes: tuple[SlotClass, ...]
    arena: Arena
    table: Table
    vram: Account | None
    ram: Account
    ssd: tuple[Part, ...]
    work: int | None = None
    ahead: bool = False
    short: int = 0
    lent: int = 0
    ring: bool = False

    @property
    def slots(self) -> int:
        """Experts in VRAM."""
        return sum(one.in_vram for one in self.classes)

    @property
    def expert_vram(self) -> int:
        """Bytes of VRAM that experts have."""
        return sum(one.in_vram * one.slot for one in self.classes)

    @property
    def share(self) -> float:
        """The part of the experts that is in VRAM."""
        return self.slots / self.sizes.experts if self.sizes.experts else 1.0

    @property
    def slot_cache(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """What `memory.slots.SlotCache` begins with: bytes of a slot by class, class of each layer, slots by class."""
        of_layer = {layer: index for index, one in enumerate(self.classes) for layer in one.layers}
        return (
            tuple(one.slot for one in self.classes),
            tuple(of_layer[layer] for layer in range(len(of_layer))),
            tuple(one.in_vram for one in self.classes),
        )

    @property
    def sentences(self) -> tuple[str, ...]:
        """What matters about it, in words."""
        from strata.memory.budget.words import sentences

        return sentences(self)

    @property
    def resident(self) -> bool:
        """Whether all experts are in VRAM."""
        return self.device == "gpu" and self.slots == self.sizes.experts


def plan(machine: Machine, sizes: Sizes, wishes: Wishes, *, work: int | None = None) -> Plan:
    """Divide a machine's memory.

    Args:
        machine: what there is.
        sizes: what the model takes.
        wishes: what is wanted.
        work: bytes that scratch memory without prompt passes was measured to take, instead of the assumed.

    Raises:
        DoesNotFitError: not even the least fits; says what is needed, what is there, and what to change.
        RequestError: a wish makes no sense for this model.
    """
    if work is not None:
        sizes = replace(sizes, work=replace(sizes.work, fixed=work, block=0))
    short = shortage(machine, sizes, wishes)
    if short is not None:
        raise DoesNotFitError(f"{sizes.name} does not fit: {short}", short, advice(machine, sizes, wishes, short))
    chosen = settle(machine, sizes, wishes)
    return (_with_gpu if chosen.gpu else _without)(machine, sizes, wishes, chosen, work)


def _with_gpu(machine: Machine, sizes: Sizes, wishes: Wishes, chosen: Settled, work: int | None) -> Plan:
    needed = least.least_vram(machine, sizes, wishes, chosen)
    fewest, transit = least.fewest_slots(sizes), min(sizes.transit, sizes.slot_bytes)
    spare = machine.vram - sum(part.nbytes for part in needed)  # >= 0, or there were a shortage
    classes = fill.classes_of(sizes.layers)
    turn = fill.order(tuple(one.experts for one in classes))
    all_experts = sum(one.slot * one.experts for one in classes)

    def talk(cells: int) -> int:
        return talk_bytes(sizes, chosen, wishes.conversations, cells)

    page = sizes.cells.page
    page_bytes = max(1, talk(page) - talk(0))
    most_more = (wishes.conversations - 1) * chosen.context
    share = (
        -(-(wishes.conversations - 1) * (chosen.context // 8) // page) * page
    )  # of the context, for each further one
    own = talk(chosen.context)
    # Bytes, not pages, are taken from experts: or a little more memory could be a page and an expert less.
    kept = min(talk(chosen.context + share) - own, spare // 8) if all_experts else 0
    more = kept // page_bytes * page
    while more and talk(chosen.context + more) - own > kept:
        more -= page
    least_pass, usual = sizes.work.least, max(sizes.work.least, sizes.work.usual or sizes.work.most)
    passes = least_pass + min(max(0, sizes.work.short - least_pass), spare // 6)
    rest = spare - kept + least_pass + max(fewest, transit)
    may = rest if wishes.experts is None else wishes.experts
    if min(rest - passes, may) >= all_experts:  # then nothing is borrowed
        passes = max(passes, min(usual, least_pass + spare // 6, rest - all_experts))
    elif machine.lends is False:  # nor where the driver cannot take slots away
        passes = least_pass + min(sizes.work.most - least_pass, spare // 6)
    room = rest - passes
    wanted = min(room, all_experts, may)
    if wanted < all_experts:
        wanted = min(wanted, room - transit)
    count = fill.prefix(turn, [one.slot for one in classes], max(wanted, fewest))
    taken = Counter(turn[:count])
    in_slots = sum(classes[index].slot * number for index, number in taken.items())
    transit = 0 if count == len(turn) else transit
    borrows = count < len(turn) and machine.lends is not False
    lent, ring = _lent(sizes, passes, in_slots) if borrows else (0, False)
    rows = sizes.work.rows(passes + lent - sizes.ring * ring)
    left = room - in_slots - transit
    table = Table.NONE if not sizes.table else Table.RAM if wishes.table == "ram" else Table.SSD
    ahead = 0
    if count == len(turn):
        # Several have it among their places. No window with drafts is launched ahead, nor where experts may be missing.
        if wishes.conversations == 1 and not chosen.drafts and left >= sizes.cells.spare:
            ahead = sizes.cells.spare
            left -= ahead
        if table is Table.SSD and wishes.table is None and left >= sizes.table:
            table, left = Table.VRAM, left - sizes.table
        left += kept
        more = max(more, min(most_more, left // 2 // page_bytes * page))
    cells = chosen.context + more
    ram = beside(machine, sizes, wishes, chosen, classes, turn, taken, table)
    vram = Account.of(
        machine.vram,
        (
            Part(least.DENSE, sizes.dense, "read for every token"),
            Part(least.DRAFT, sizes.draft if chosen.drafts else 0, "guesses tokens ahead"),
            Part(least.TALK, talk(cells) + ahead, _talk_note(wishes.conversations, cells, chosen)),
            Part(least.WORK, least.fixed_work(sizes, chosen.context), "scratch" if work is None else "as measured"),
            Part(least.PASS, passes, _pass_note(sizes.work.rows(passes), borrows=lent > 0)),
            Part(least.EXPERTS, in_slots, _slots_note(count, len(turn))),
            Part(least.TRANSIT, transit, "from RAM to slots, windows and prompts"),
            Part(least.TABLE, sizes.table if table is Table.VRAM else 0),
            Part(least.KEPT, wishes.vram_kept(machine.vram), "for the desktop and other programs"),
        ),
    )
    return Plan(
        machine, sizes, wishes, "gpu", chosen.context, wishes.conversations, cells, chosen.kv, chosen.drafts,
        rows, ram.classes, ram.arena, ram.table, vram, ram.account, ram.ssd, work, ahead > 0, sizes.work.rows(passes),
        lent, ring,
    )  # fmt: skip


def _lent(sizes: Sizes, passes: int, in_slots: int) -> tuple[int, bool]:
    """Bytes of slots that the longest pass borrows, and whether its ring is among them: the last to be had."""
    may, wanted = in_slots // LENT, max(0, sizes.work.most - passes)
    if may < wanted + sizes.ring:
        return min(may, wanted), False
    return wanted + sizes.ring, sizes.ring > 0


def _without(machine: Machine, sizes: Sizes, wishes: Wishes, chosen: Settled, work: int | None) -> Plan:
    """All in RAM: weights as the file stores them, conversations as they grow; experts that do not fit on the SSD."""
    needed = least.least_ram(machine, sizes, wishes, chosen)
    fewest = least.fewest_stored(sizes)
    spare = machine.ram - sum(part.nbytes for part in needed)
    parked = least.parked(wishes, spare)
    classes = fill.classes_of(sizes.layers)
    turn = fill.some_first(fill.order(tuple(one.experts for one in classes)), least.fewest_held(sizes))
    held = [one.held for one in classes]
    room = fewest + spare - parked
    if wishes.experts is not None:
        room = max(fewest, min(room, wishes.experts))
    if room >= sizes.expert_bytes:  # mapped: nothing is read by itself
        here, experts = Counter(turn), sizes.expert_bytes
    else:
        here = Counter(turn[: fill.prefix(turn, held, room - sizes.slack)])
        experts = sum(held[index] * number for index, number in here.items()) + sizes.slack

    def talk(cells: int) -> int:
        return talk_bytes(sizes, chosen, wishes.conversations, cells)

    page = (sizes.host_cells or sizes.cells).page
    page_bytes = max(1, talk(page) - talk(0))
    cells = chosen.context
    if here.total() == len(turn) and wishes.experts is None:
        cells += min((wishes.conversations - 1) * chosen.context, (room - experts) // 2 // page_bytes * page)
    table = Table.NONE if not sizes.table else Table.RAM if wishes.table == "ram" else Table.SSD
    rows = least.row_cache(sizes) if table is Table.SSD else 0
    note = "all of them, as the file stores them" if here.total() == len(turn) else "the most used, as many as fit"
    ram = Account.of(
        machine.ram,
        (
            Part(least.DENSE, least.host_dense(sizes, chosen), "read for every token"),
            Part(least.EXPERTS, experts, note),
            Part(least.TABLE, sizes.table if table is Table.RAM else 0),
            Part(least.TABLE_ROWS, rows, "that were read lately"),
            Part(least.TALK, talk(cells), _talk_note(wishes.conversations, cells, chosen)),
            Part(least.PARKED, parked, "not running, but not read again"),
            Part(least.PROCESS, least.HOST_ALONE, "interpreter and libraries"),
            Part(least.SYSTEM, wishes.ram_kept(machine.ram)),
        ),
    )
    found = tuple(replace(one, in_ram=here[i], on_ssd=one.experts - here[i]) for i, one in enumerate(classes))
    ssd = Account.of(
        0,
        (
            Part(least.EXPERTS, sum(one.on_ssd * one.stored for one in found), "read when they are needed"),
            Part(least.TABLE, sizes.table if table is Table.SSD else 0, f"{shown_bytes(sizes.row)} a token"),
        ),
    ).parts
    arena = Arena.NONE if not found else Arena.ALL if here.total() == len(turn) else Arena.PART
    return Plan(
        machine, sizes, wishes, "cpu", chosen.context, wishes.conversations, cells, chosen.kv,
        sizes.draft > 0 and wishes.drafts, 0, found, arena, table, None, ram, ssd, work,
    )  # fmt: skip


def _talk_note(count: int, cells: int, chosen: Settled) -> str:
    if count == 1:
        return f"one of {shown_tokens(chosen.context)} tokens, keys and values in {chosen.kv}"
    return f"{count} of together {cells:,} tokens, keys and values in {chosen.kv}"


def _pass_note(rows: int, *, borrows: bool) -> str:
    return f"{rows:,} tokens at a time" + (", longer ones borrow" if borrows else "")


def _slots_note(count: int, total: int) -> str:
    return f"all {total:,}" if count == total else f"{count:,} of {total:,}, the most used" if total else ""
