"""Device memory of conversations: recurrent states by place, tails and raw indexer keys by slot, cells by page."""

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from strata.errors import RequestError
from strata.model.config import Mixer, ModelConfig
from strata.model.kv import codec
from strata.model.memory import PLAIN, Memory
from strata.ops.gpu.arrivals import Arrivals
from strata.ops.gpu.blocks import Blocks
from strata.ops.qsa.pages import PAGE, RING

if TYPE_CHECKING:
    from strata.ops.gpu.draft import GpuMtp
    from strata.ops.gpu.parts import GpuParts

KINDS = {"bf16": torch.bfloat16, "q8": torch.uint8}
"""How the types of keys and values that a device has are held there; bytes are as `strata.model.kv` has them."""

WINDOW_CONVERSATIONS = 8
"""Most conversations of a window; each needs a place beside its own while the window is computed."""


@dataclass(eq=False, slots=True, weakref_slot=True)
class GpuState:
    """A conversation on the device; `strata.model.state.State` is the same on the CPU.

    One that has not begun takes no memory there: `Pool.reserve` gives it a slot, a place and pages.

    Attributes:
        length: committed tokens.
        next_position: of the next text token.
        pool: whose memory it is in.
        seat: the slot, one number, where its tails, raw indexer keys and row of the page table are; empty before it
            begins.
        home: likewise the place of its recurrent states.
        pages: of its attention cells, in order.
        mtp: what its draft head remembers.
    """

    length: int
    next_position: int
    pool: "Pool" = field(repr=False)
    seat: list[int] = field(default_factory=list)
    home: list[int] = field(default_factory=list)
    pages: list[int] = field(default_factory=list)
    mtp: "GpuMtp | None" = None

    @property
    def slot(self) -> int:
        """Where its tails are."""
        return self.seat[0]

    @property
    def place(self) -> int:
        """Where its recurrent states are."""
        return self.home[0]

    def clone(self) -> "GpuState":
        """An independent copy: nothing done to one is seen by the other.

        Raises:
            RequestError: the pool is full.
        """
        other = self.pool.clone(self)
        other.mtp = self.mtp.clone() if self.mtp else None
        return other

    def parts(self) -> "GpuParts":
        """It as snapshots take it apart."""
        from strata.ops.gpu.parts import GpuParts

        return GpuParts(self)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every committed number by name, on the CPU."""
        parts = self.parts()
        yield from parts.singles().items()
        yield from parts.rows({name: (0, count) for name, count in parts.counts().items()}).items()


class Pool:
    """Memory for a number of conversations of together so many cells.

    Args:
        config: dimensions.
        device: where it is.
        slots: most conversations.
        cells: of attention.
        kv: of `KINDS`, or float32.
        ahead: a place more: beside a single conversation's and its window's, for the window that is launched ahead.

    Attributes:
        config: dimensions.
        states: float32 [places, recurrent layers, nv, d, d].
        tails: float32 [slots, recurrent layers, taps-1, channels].
        keys, values: by attention layer, [pages, PAGE, nkv, hd]; bytes of q8, uint8 [pages, PAGE, nkv, hd/32, 36].
        raw: float32 [attention layers, slots, RING, id]; see `strata.ops.qsa.pages.RING`.
        blocks: by attention layer, float32 [pages, PAGE/ratio, id].
        table: int32 [slots, pages of the longest conversation].
        ngram_tails: float32 [slots, (taps-1)*n, S*H].
        history: int32 [slots, n-1].
        memory: of the CPU, where what is kept of conversations lies.
        arrivals: through which conversations come back.
    """

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device,
        *,
        slots: int,
        cells: int,
        kv: torch.dtype = torch.bfloat16,
        ahead: bool = False,
    ) -> None:
        self.config = c = config
        pages = -(-cells // PAGE)
        self.cells = pages * PAGE
        self.most_pages = -(-c.context // PAGE)

        def zeros(name: str) -> list[Tensor]:
            return [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in shapes[name]]

        shapes = _shapes(c, slots, pages, kv, ahead=ahead)
        (self.states,), (self.tails,), (self.table,) = zeros("states"), zeros("tails"), zeros("table")
        self.keys, self.values, self.blocks = (zeros(name) for name in ("keys", "values", "blocks"))
        (self.raw,), (self.ngram_tails,), (self.history,) = zeros("raw"), zeros("ngram_tails"), zeros("history")
        self._slots = list(reversed(range(slots)))
        self._places = list(reversed(range(len(self.states))))
        self._pages = list(reversed(range(pages)))
        self.memory: Memory = Blocks() if device.type == "cuda" else PLAIN
        self.arrivals = Arrivals(device)
        self._lent: dict[int, None] = {}  # places of windows that were not committed yet, the oldest first
        self._begun: weakref.WeakSet[GpuState] = weakref.WeakSet()

    @property
    def slots(self) -> int:
        """Most conversations at a time."""
        return len(self.table)

    @property
    def free_cells(self) -> int:
        """Cells of pages that no conversation has."""
        return len(self._pages) * PAGE

    def fits(self, needs: Sequence[tuple[GpuState | None, int]]) -> bool:
        """Whether conversations, or ones to come (None), can have so many cells each at once."""
        pages = sum(max(0, -(-cells // PAGE) - (len(state.pages) if state else 0)) for state, cells in needs)
        return pages <= len(self._pages) and sum(not (state and state.seat) for state, _ in needs) <= len(self._slots)

    def new_state(self) -> GpuState:
        """The state before the first token; it takes no memory until it begins."""
        return GpuState(0, 0, self)

    def clone(self, state: GpuState) -> GpuState:
        """An independent copy.

        Raises:
            RequestError: the pool is full.
        """
        other = GpuState(state.length, state.next_position, self)
        if not state.seat:
            return other
        self.reserve(other, state.length)
        self.states[other.place] = self.states[state.place]
        for rows in (self.tails, self.ngram_tails, self.history):
            rows[other.slot] = rows[state.slot]
        self.raw[:, other.slot] = self.raw[:, state.slot]
        for tables in (self.keys, self.values, self.blocks):
            for cells in tables:
                cells[other.pages] = cells[state.pages[: len(other.pages)]]
        return other

    def reserve(self, state: GpuState, cells: int) -> None:
        """Give a conversation the pages it needs for so many cells, and a slot and a place if it has none.

        Raises:
            RequestError: no slot or not so many pages are free; the conversation then has what it had before.
        """
        missing = -(-cells // PAGE) - len(state.pages)
        if missing > len(self._pages):
            raise RequestError(
                f"the attention cache is full: {missing * PAGE} more cells are needed, {self.free_cells} of "
                f"{self.cells} are free; end other conversations or give the cache more memory"
            )
        if not state.seat:
            self._begin(state)
        if missing > 0:
            first, pages = len(state.pages), [self._pages.pop() for _ in range(missing)]
            row = self.table[state.slot, first : first + missing]
            row.copy_(torch.tensor(pages, dtype=torch.int32), non_blocking=True)  # behind whatever is on its way
            state.pages += pages

    def left(self, state: GpuState) -> Tensor:
        """Raw indexer keys of the block that a conversation's tokens leave open; behind them zeros.

        Returns:
            float32 [attention layers, ratio-1, id].
        """
        ratio = self.config.qsa.ratio
        found = self.raw.new_zeros((len(self.raw), ratio - 1, self.raw.shape[-1]))
        count, at = state.length % ratio, state.length // ratio * ratio % RING
        if count:
            found[:, :count] = self.raw[:, state.slot, at : at + count]
        return found

    def keep(self, state: GpuState, left: Tensor, end: int) -> None:
        """Put keys of the block that so many tokens leave open in their place, those that are not committed yet.

        Args:
            state: the conversation, with fewer tokens.
            left: as `left` has it.
            end: tokens.
        """
        block = end // self.config.qsa.ratio * self.config.qsa.ratio
        first = max(state.length, block)
        if first < end:
            self.raw[:, state.slot, first % RING : first % RING + end - first] = left[:, first - block : end - block]

    def spare(self) -> int:
        """A place no state is in, for the time of a window.

        Whoever abandons a window need not give its places back: they are taken again, the oldest first, when no other
        is left. There are enough for one window beside all states.
        """
        if not self._places:
            homes = {place for state in self._begun for place in state.home}
            self._lent = {place: None for place in self._lent if place not in homes}
            self._places.append(next(iter(self._lent)))
        place = self._places.pop()
        self._lent.pop(place, None)
        self._lent[place] = None
        return place

    @property
    def free_places(self) -> int:
        """Places that no state and no window has."""
        return len(self._places)

    def hold(self, place: int) -> None:
        """A place on loan is not taken back, whoever needs one, until it is lent again or given back."""
        del self._lent[place]

    def lend(self, place: int) -> None:
        """A place that was held is on loan, as `spare` leaves it."""
        self._lent[place] = None

    def give_back(self, place: int) -> None:
        """The place is free."""
        self._lent.pop(place, None)
        self._places.append(place)

    def _begin(self, state: GpuState) -> None:
        if not self._slots:
            raise RequestError(f"all {self.slots} places for conversations are taken; end one first")
        state.seat.append(self._slots.pop())
        state.home.append(self.spare())
        del self._lent[state.place]
        self._begun.add(state)
        weakref.finalize(state, self._released, state.seat, state.home, state.pages)
        self.states[state.place].zero_()
        self.tails[state.slot].zero_()
        self.ngram_tails[state.slot].zero_()
        self.history[state.slot] = self.config.ple.eos if self.config.ple else 0

    def _released(self, seat: list[int], home: list[int], pages: list[int]) -> None:
        self._slots += seat
        for place in home:
            self.give_back(place)
        self._pages += pages


def head_config(c: ModelConfig) -> ModelConfig:
    """The dimensions of the draft head's one layer as a model of its own."""
    return replace(c, mixers=(Mixer.QSA,), ple=None, mtp=False)


def pool_bytes(c: ModelConfig, *, slots: int, cells: int, kv: torch.dtype = torch.bfloat16) -> int:
    """Memory of such a pool."""
    shapes = _shapes(c, slots, -(-cells // PAGE), kv)
    return sum(prod(shape) * dtype.itemsize for tables in shapes.values() for shape, dtype in tables)


def _shapes(
    c: ModelConfig, slots: int, pages: int, kv: torch.dtype, *, ahead: bool = False
) -> dict[str, list[tuple[tuple[int, ...], torch.dtype]]]:
    """Shapes and types of everything, by name."""
    g, q = c.gdn, c.qsa
    recurrent = sum(mixer is Mixer.GDN for mixer in c.mixers)
    attention = len(c.mixers) - recurrent
    n, taps = (c.ple.n, c.ple.conv) if c.ple else (1, 1)
    f32 = torch.float32
    eight = codec("q8") if kv == KINDS["q8"] else None
    row = (q.nkv, q.hd) if eight is None else eight.stored(q.nkv, q.hd)
    cells: list[tuple[tuple[int, ...], torch.dtype]] = [((pages, PAGE, *row), kv)] * attention
    return {
        "states": [((slots + min(slots, WINDOW_CONVERSATIONS) + ahead, recurrent, g.nv, g.d, g.d), f32)],
        "tails": [((slots, recurrent, g.conv - 1, g.channels), f32)],
        "keys": cells,
        "values": cells,
        "raw": [((attention, slots, RING, q.id), f32)],
        "blocks": [((pages, PAGE // q.ratio, q.id), f32)] * attention,
        "table": [((slots, -(-c.context // PAGE)), torch.int32)],
        "ngram_tails": [((slots, (taps - 1) * n, c.S * c.H), f32)],
        "history": [((slots, n - 1), torch.int32)],
    }
