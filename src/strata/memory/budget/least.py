"""The least that a model takes: what must fit, or there is no plan."""

from dataclasses import dataclass

from strata.errors import RequestError
from strata.memory.budget import fill
from strata.memory.budget.account import Part
from strata.memory.budget.machine import Machine
from strata.memory.budget.refusal import Shortage
from strata.memory.budget.shown import shown_bytes, shown_tokens
from strata.memory.budget.sizes import Cells, Sizes
from strata.memory.budget.wishes import Wishes

HELD = 16
"""Experts of each size that RAM has at least, where there is no GPU: a row's, and those that are being read."""

HOST, HOST_ALONE = 1_500_000_000, 500_000_000
"""Bytes of RAM for the process: interpreter, libraries, and beside a GPU its driver's part. About."""

STAGING = 256 << 20
"""Bytes of pinned RAM for what is on its way."""

TOKENS_KEPT = 1 << 16
"""Tokens whose rows of the n-gram table RAM keeps at most, where the table is on the SSD."""

DENSE, DRAFT, TALK, WORK, PASS = "dense weights", "draft head", "conversations", "windows and graphs", "prompt passes"
EXPERTS, TABLE, KEPT, PROCESS, PARKED = "experts", "n-gram table", "kept free", "the process", "kept conversations"
TRAVEL, TABLE_ROWS, FILES, TRANSIT = "transfers", "n-gram rows", "model files", "experts on their way"
FEWEST, SYSTEM = "the fewest experts", "left to the system"


@dataclass(frozen=True, slots=True)
class Settled:
    """Wishes with every choice made.

    Attributes:
        context: tokens of a conversation.
        kv: type of keys and values.
        drafts: whether the draft head runs.
        gpu: whether there is a card.
    """

    context: int
    kv: str
    drafts: bool
    gpu: bool


def settle(machine: Machine, sizes: Sizes, wishes: Wishes) -> Settled:
    """Make the choices that do not depend on what fits.

    Raises:
        RequestError: a wish makes no sense for this model.
    """
    gpu = machine.vram > 0
    cells = _cells(sizes, gpu=gpu)
    kv = next(iter(cells.pages)) if wishes.kv is None else wishes.kv
    if kv not in cells.pages:
        known = ", ".join(cells.pages)
        raise RequestError(f"keys and values are kept as {known} {'on a GPU' if gpu else 'on the CPU'}, not as {kv}")
    context = sizes.context if wishes.context is None else wishes.context
    if not 1 <= context <= sizes.context:
        raise RequestError(
            f"a context of {context} tokens is more than the {sizes.context} of {sizes.name}; set --context to at most "
            f"{shown_tokens(sizes.context)}, or --rope-scale"
        )
    if wishes.conversations < 1:
        raise RequestError(f"at least one conversation runs at a time, not {wishes.conversations}")
    return Settled(context, kv, wishes.drafts and sizes.draft > 0, gpu)


def _cells(sizes: Sizes, *, gpu: bool) -> Cells:
    if gpu:
        return sizes.cells
    return sizes.cells if sizes.host_cells is None else sizes.host_cells


def talk_bytes(sizes: Sizes, chosen: Settled, conversations: int, cells: int) -> int:
    """Bytes of conversations with together so many cells, draft heads included."""
    kinds = [_cells(sizes, gpu=chosen.gpu)]
    if chosen.gpu and chosen.drafts and sizes.draft_cells is not None:
        kinds.append(sizes.draft_cells)
    return sum(
        kind.nbytes(
            chosen.kv if chosen.kv in kind.pages else next(iter(kind.pages)),
            conversations=conversations,
            cells=cells,
            context=chosen.context,
        )
        for kind in kinds
    )


def fewest_slots(sizes: Sizes) -> int:
    """Bytes of the fewest slots there can be: none, or all where these take no more than what brings them."""
    return sizes.slot_bytes if sizes.slot_bytes <= sizes.transit else 0


def fewest_held(sizes: Sizes) -> int:
    """Experts of each size that RAM holds at least where nothing else does."""
    return HELD if sizes.reads is None else max(HELD, sizes.reads.used)


def fewest_stored(sizes: Sizes) -> int:
    """Bytes of those; of all experts if these take no more."""
    least = fewest_held(sizes)
    some = sum(one.held * min(one.experts, least) for one in fill.classes_of(sizes.layers))
    return min(sizes.expert_bytes, some + sizes.slack)


def host_dense(sizes: Sizes, chosen: "Settled") -> int:
    """Bytes of weights that are in RAM all the time where there is no GPU."""
    return sizes.stored - sizes.expert_bytes - (0 if chosen.drafts else sizes.draft_stored)


def fixed_work(sizes: Sizes, context: int) -> int:
    """Bytes of scratch memory on a GPU without those of prompt passes."""
    return sizes.work.fixed + sizes.work.block * -(-context // sizes.work.tokens)


def row_cache(sizes: Sizes) -> int:
    """Bytes of the n-gram rows that RAM keeps."""
    return min(sizes.table, TOKENS_KEPT * sizes.row)


def least_vram(machine: Machine, sizes: Sizes, wishes: Wishes, chosen: Settled) -> list[Part]:
    """What must lie in VRAM at least."""
    talk = talk_bytes(sizes, chosen, wishes.conversations, chosen.context)
    return [
        Part(DENSE, sizes.dense),
        Part(DRAFT, sizes.draft if chosen.drafts else 0),
        Part(_named(TALK, wishes.conversations, chosen), talk),
        Part(WORK, fixed_work(sizes, chosen.context)),
        Part(PASS, sizes.work.least),
        Part(FEWEST, fewest_slots(sizes)),
        Part(TRANSIT, 0 if fewest_slots(sizes) else min(sizes.transit, sizes.slot_bytes)),
        Part(KEPT, wishes.vram_kept(machine.vram)),
    ]


def least_ram(machine: Machine, sizes: Sizes, wishes: Wishes, chosen: Settled) -> list[Part]:
    """What must lie in RAM at least."""
    kept = Part(SYSTEM, wishes.ram_kept(machine.ram))
    here = wishes.table == "ram"
    table = Part(TABLE, sizes.table if here else 0)
    rows = Part(TABLE_ROWS, 0 if here else row_cache(sizes))
    if chosen.gpu:
        return [Part(PROCESS, HOST), Part(TRAVEL, STAGING), table, rows, kept]
    talk = talk_bytes(sizes, chosen, wishes.conversations, chosen.context)
    return [
        Part(DENSE, host_dense(sizes, chosen)),
        Part(FEWEST, fewest_stored(sizes)),
        table,
        rows,
        Part(_named(TALK, wishes.conversations, chosen), talk),
        Part(PROCESS, HOST_ALONE),
        kept,
    ]


def parked(wishes: Wishes, spare: int) -> int:
    """Bytes for conversations that are kept: as wished, but no more than a quarter of what the least leaves."""
    return min(wishes.parked, spare // 4)


def _named(name: str, count: int, chosen: Settled) -> str:
    what = name if count > 1 else "a conversation"
    return f"{what} with a context of {shown_tokens(chosen.context)} tokens in {chosen.kv}"


def shortage(machine: Machine, sizes: Sizes, wishes: Wishes) -> Shortage | None:
    """What does not fit at all; None if there is a plan.

    Raises:
        RequestError: a wish makes no sense for this model.
    """
    chosen = settle(machine, sizes, wishes)
    found = []
    if chosen.gpu:
        found.append(Shortage("VRAM", tuple(least_vram(machine, sizes, wishes, chosen)), machine.vram))
    found.append(Shortage("RAM" + _inside(machine), tuple(least_ram(machine, sizes, wishes, chosen)), machine.ram))
    if machine.disk is not None and sizes.files:
        found.append(Shortage("the disk", (Part(FILES, sizes.files),), machine.disk))
    return next((one for one in found if one.need > one.free), None)


def _inside(machine: Machine) -> str:
    return f" (limit of this container or service: {shown_bytes(machine.limit)})" if machine.limit else ""
