"""Conversations in pages, and the kernels of a window's attention run on them."""

import torch

from strata.model.config import Rope
from strata.model.kv import codec
from strata.ops.norm.reference import rms
from strata.ops.qsa.choose import BINS as _BINS
from strata.ops.qsa.pages import RING
from strata.ops.rope.reference import cos_sin, rotate
from support.launch import Kernels, holds_quantised, poisoned

NH, NKV, HD, IH, ID, RATIO, BUDGET, EPS = 4, 2, 64, 2, 32, 4, 8, 1e-6
HALF, PAGE, PAGES, CELLS = 8, 64, 12, 16
PARTS = (BUDGET * RATIO + RATIO - 1 + CELLS - 1) // CELLS
ROPE = Rope(dims=2 * HALF, theta=1e4, sections=(3, 3, 2), scale=1.0, original_context=256)
LAYOUT = {"RATIO": RATIO, "BUDGET": BUDGET}
TILE = 4
BINS = int(_BINS.value)
SELECT = {"TILE": TILE, "COUNTED": True, "PDL": False}


def _tables(kv: torch.dtype) -> torch.Tensor:
    """Keys and values full of what is no number, as they are stored: float32, or uint8 for q8."""
    if kv == torch.uint8:
        return torch.full((2, PAGES, PAGE, NKV, HD // 32, 36), 255, dtype=kv)
    return torch.full((2, PAGES, PAGE, NKV, HD), torch.nan, dtype=kv)


def _stored(rows: torch.Tensor, kv: torch.dtype) -> torch.Tensor:
    eight = codec("q8")
    assert eight is not None
    return eight.encode(rows) if kv == torch.uint8 else rows


class Case:
    """Conversations with committed cells, and a window behind them."""

    def __init__(self, committed: list[int], rows: list[int], kv: torch.dtype = torch.float32) -> None:
        random = torch.Generator().manual_seed(7)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        self.committed, self.rows, count = committed, rows, sum(rows)
        self.norms = [1 + 0.1 * normal(HD), 1 + 0.1 * normal(HD), 1 + 0.1 * normal(ID), 1 + 0.1 * normal(ID)]
        longest = max(committed) + 8
        # Everything a conversation has, by cell; the window's rows are the last of it.
        self.k = [normal(longest, NKV, HD) for _ in committed]
        self.v = [normal(longest, NKV, HD) for _ in committed]
        self.ik = [normal(longest, ID) for _ in committed]
        self.qg, self.iq = normal(count, NH, 2, HD), normal(count, IH, ID)
        self.slots = torch.tensor([1, 0, 2][: len(rows)], dtype=torch.int32)
        self.first = torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32)
        self.owner = torch.tensor([i for i, n in enumerate(rows) for _ in range(n)], dtype=torch.int32)
        self.lengths = torch.tensor(committed, dtype=torch.int32)
        order = torch.randperm(PAGES, generator=random).to(torch.int32)
        self.pages = order.reshape(3, PAGES // 3)
        self.keys, self.values = _tables(kv)
        self.raw = torch.full((3, RING, ID), torch.nan)
        self.blocks = torch.full((PAGES, PAGE // RATIO, ID), torch.nan)
        for i, length in enumerate(committed):
            for cell in range(length):
                page = int(self.pages[self.slots[i], cell // PAGE])
                self.keys[page, cell % PAGE] = _stored(self.rotated(self.k[i], 1, [cell]), kv)[0]
                self.values[page, cell % PAGE] = _stored(self.v[i][cell : cell + 1], kv)[0]
                if cell // RATIO == length // RATIO:  # of complete blocks none is needed
                    self.raw[self.slots[i], cell % RING] = self.ik[i][cell]
            for block in range(length // RATIO):
                page = int(self.pages[self.slots[i], block // (PAGE // RATIO)])
                self.blocks[page, block % (PAGE // RATIO)] = self.block(i, block)

    def rotated(self, x: torch.Tensor, which: int, cells: list[int]) -> torch.Tensor:
        angles = cos_sin(torch.tensor(cells)[:, None].repeat(1, 3), ROPE)
        return rotate(rms(x[cells], self.norms[which], EPS), *angles)

    def block(self, conversation: int, block: int) -> torch.Tensor:
        mean = self.ik[conversation][block * RATIO : (block + 1) * RATIO].mean(0)[None, None]
        angles = cos_sin(torch.tensor([[block * RATIO] * 3]), ROPE)
        return rotate(rms(mean, self.norms[3], EPS), *angles)[0, 0]

    def place(self, conversation: int, cell: int) -> tuple[int, int]:
        """Page and row of a cell."""
        return int(self.pages[self.slots[conversation], cell // PAGE]), cell % PAGE

    def cells(self) -> list[int]:
        """The cell of every row."""
        return [self.committed[i] + j for i, n in enumerate(self.rows) for j in range(n)]

    def run(self, kernels: Kernels, *, split: bool = False, numbers: bool = True, joined: bool = False) -> torch.Tensor:
        """Attention's gated output, before quantising: [T, NH*HD]; unless all are `numbers`, that is not looked at.

        With `joined` the indexer's keys lie behind its queries, row by row.
        """
        cells, count = self.cells(), sum(self.rows)
        take = [(i, self.committed[i] + j) for i, n in enumerate(self.rows) for j in range(n)]
        k, v, ik = (torch.stack([x[i][c] for i, c in take]) for x in (self.k, self.v, self.ik))
        cos, sin = cos_sin(torch.arange(256)[:, None].repeat(1, 3), ROPE)
        positions = torch.tensor(cells, dtype=torch.int32)
        starts = positions // RATIO * RATIO
        slots, begins = self.slots[self.owner.long()], self.first[self.owner.long()]
        where = (slots, positions + 1)
        paged = (self.pages, self.pages.shape[1])
        self.q_out = torch.full((count, NH, HD), torch.nan)
        self.iq_out = torch.full((count, IH, ID), torch.nan)
        kernels.prepare[(count, NH + 2 * NKV)](
            self.qg, k, v, cos, sin, positions, *self.norms[:2], EPS, *where, *paged, self.q_out,
            self.keys, self.values, NH=NH, NKV=NKV, HD=HD, HALF=HALF, PDL=False,
        )  # fmt: skip
        bins = torch.full((count, BINS), -1, dtype=torch.int32)
        asked = torch.cat((self.iq.reshape(count, IH * ID), ik.reshape(count, ID)), 1)
        iq, ik = (asked, asked[:, IH * ID :]) if joined else (self.iq, ik)
        kernels.index[(count, IH + 1)](
            iq, ik, cos, sin, positions, starts, *self.norms[2:], EPS, *where, begins, *paged, self.iq_out,
            self.raw, self.blocks, self.raw, where[1], bins, IH=IH, ID=ID, HALF=HALF, RATIO=RATIO, FIRST=0,
            JOINED=joined, WINDOW=True, COUNTED=True, PDL=False,
        )  # fmt: skip
        most = 64
        self.scores = torch.full((count, most), torch.nan)
        peaks = torch.full((count, most // TILE), torch.nan)
        kernels.score[(len(self.rows), 2, max(self.rows))](
            self.iq_out, self.blocks, self.slots, where[1], self.first, *paged, self.scores, peaks, bins, most,
            IH=IH, ID=ID, BLOCK=16, LANES=16, **LAYOUT, **SELECT,
        )  # fmt: skip
        self.chosen = torch.full((count, BUDGET), -1, dtype=torch.int32)
        Kernels("strata.ops.qsa.choose").choose[(count,)](
            self.scores, peaks, bins, most, where[1], self.chosen, **LAYOUT, **SELECT
        )
        part = torch.full((count, NH, PARTS, HD), torch.nan)
        peak, weight = torch.full((2, count, NH, PARTS), torch.nan)
        kernels.attend[(count, NKV, PARTS)](
            self.q_out, self.keys, self.values, self.chosen, *where, *paged, part, peak, weight,
            NH=NH, NKV=NKV, HD=HD, HEADS=16, CELLS=CELLS, PARTS=PARTS, LANES=32, SPLIT=split, PDL=False, **LAYOUT,
        )  # fmt: skip
        gated, (q, s, sums) = torch.full((count, NH * HD), torch.nan), poisoned(count, NH * HD)
        kernels.merge[(count, NH, 2)](
            part, peak, weight, self.qg, where[1], gated, q, s, sums,
            NH=NH, HD=HD, CELLS=CELLS, PARTS=PARTS, FEW=1, ROOM=4, LANES=32, PDL=False, **LAYOUT,
        )  # fmt: skip
        if numbers:
            holds_quantised(gated, q, s, sums)
        return gated
