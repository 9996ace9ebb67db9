"""Device memory of conversations: recurrent states by place, tails by slot, attention cells by page."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from strata.errors import RequestError
from strata.model.config import Mixer, ModelConfig
from strata.ops.qsa.gpu import PAGE as _PAGE

PAGE = int(_PAGE.value)
"""Cells of a page."""

WINDOW_CONVERSATIONS = 8


@dataclass(eq=False, slots=True, weakref_slot=True)
class GpuState:
    """A conversation on the device; `strata.model.state.State` is the same on the CPU.

    Attributes:
        length: committed tokens.
        next_position: of the next text token.
        slot: where its tails and its row of the page table are.
        home: one number, the place of its recurrent states.
        pages: of its attention cells, in order.
    """

    length: int
    next_position: int
    slot: int
    home: list[int]
    pages: list[int] = field(default_factory=list)
    mtp: None = None

    @property
    def place(self) -> int:
        """Where its recurrent states are."""
        return self.home[0]


class Pool:
    """Memory for a number of conversations of together so many cells.

    Attributes:
        states: float32 [places, recurrent layers, nv, d, d].
        tails: float32 [slots, recurrent layers, taps-1, channels].
        keys, values: by attention layer, [pages, PAGE, nkv, hd].
        raw: by attention layer, float32 [pages, PAGE, id].
        blocks: by attention layer, float32 [pages, PAGE/ratio, id].
        table: int32 [slots, pages of the longest conversation].
        ngram_tails: float32 [slots, (taps-1)*n, S*H].
        history: int32 [slots, n-1].
    """

    def __init__(
        self, c: ModelConfig, device: torch.device, *, slots: int, cells: int, kv: torch.dtype = torch.bfloat16
    ) -> None:
        self._c = c
        g, q = c.gdn, c.qsa
        recurrent = sum(mixer is Mixer.GDN for mixer in c.mixers)
        attention = len(c.mixers) - recurrent
        pages = -(-cells // PAGE)
        self.cells = pages * PAGE
        self.most_pages = -(-c.context // PAGE)

        def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device)

        self.states = zeros(slots + WINDOW_CONVERSATIONS, recurrent, g.nv, g.d, g.d)
        self.tails = zeros(slots, recurrent, g.conv - 1, g.channels)
        self.keys = [zeros(pages, PAGE, q.nkv, q.hd, dtype=kv) for _ in range(attention)]
        self.values = [zeros(pages, PAGE, q.nkv, q.hd, dtype=kv) for _ in range(attention)]
        self.raw = [zeros(pages, PAGE, q.id) for _ in range(attention)]
        self.blocks = [zeros(pages, PAGE // q.ratio, q.id) for _ in range(attention)]
        self.table = zeros(slots, self.most_pages, dtype=torch.int32)
        n, taps = (c.ple.n, c.ple.conv) if c.ple else (1, 1)
        self.ngram_tails = zeros(slots, (taps - 1) * n, c.S * c.H)
        self.history = zeros(slots, n - 1, dtype=torch.int32)
        self._slots = list(reversed(range(slots)))
        self._places = list(reversed(range(len(self.states))))
        self._pages = list(reversed(range(pages)))

    def new_state(self) -> GpuState:
        """The state before the first token.

        Raises:
            RequestError: every slot is taken.
        """
        state = self._taken(0, 0)
        self.states[state.place].zero_()
        self.tails[state.slot].zero_()
        self.ngram_tails[state.slot].zero_()
        self.history[state.slot] = self._c.ple.eos if self._c.ple else 0
        return state

    def clone(self, state: GpuState) -> GpuState:
        """An independent copy."""
        other = self._taken(state.length, state.next_position)
        self.states[other.place] = self.states[state.place]
        for rows in (self.tails, self.ngram_tails, self.history):
            rows[other.slot] = rows[state.slot]
        self.reserve(other, state.length)
        for tables in (self.keys, self.values, self.raw, self.blocks):
            for cells in tables:
                cells[other.pages] = cells[state.pages[: len(other.pages)]]
        return other

    def reserve(self, state: GpuState, cells: int) -> None:
        """Give a conversation the pages it needs for so many cells.

        Raises:
            RequestError: no page is free.
        """
        while len(state.pages) * PAGE < cells:
            if not self._pages:
                raise RequestError(
                    f"the attention cache is full: no page of {PAGE} cells is left for token "
                    f"{len(state.pages) * PAGE}; end other conversations or give the cache more memory"
                )
            page = self._pages.pop()
            self.table[state.slot, len(state.pages)] = page
            state.pages.append(page)

    def spare(self) -> int:
        """A place no state is in, for the time of a window."""
        return self._places.pop()

    def give_back(self, place: int) -> None:
        """The place is free."""
        self._places.append(place)

    def tensors(self, state: GpuState) -> Iterator[tuple[str, Tensor]]:
        """Every committed number by name, on the CPU, as `State.tensors` names them."""
        ratio = self._c.qsa.ratio
        yield "counters", torch.tensor([state.length, state.next_position, *self.history[state.slot].tolist()])
        yield "ngram_tail", self.ngram_tails[state.slot].cpu()
        recurrent = attention = 0
        for i, mixer in enumerate(self._c.mixers):
            if mixer is Mixer.GDN:
                yield f"layer.{i}.s", self.states[state.place, recurrent].cpu()
                yield f"layer.{i}.tail", self.tails[state.slot, recurrent].cpu()
                recurrent += 1
                continue
            parts = zip(("k", "v", "ik", "blocks"), (self.keys, self.values, self.raw, self.blocks), strict=True)
            for name, tables in parts:
                count = state.length // ratio if name == "blocks" else state.length
                yield f"layer.{i}.{name}", tables[attention][state.pages].flatten(0, 1)[:count].cpu()
            attention += 1

    def _taken(self, length: int, position: int) -> GpuState:
        if not self._slots:
            raise RequestError(f"all {len(self.table)} places for conversations are taken; end one first")
        state = GpuState(length, position, self._slots.pop(), [self._places.pop()])
        weakref.finalize(state, self._released, state.slot, state.home, state.pages)
        return state

    def _released(self, slot: int, home: list[int], pages: list[int]) -> None:
        self._slots.append(slot)
        self._places += home
        self._pages += pages
