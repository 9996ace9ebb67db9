"""Attention of many rows against the torch formulas: rows within the budget, beyond it, and on both sides."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.model.kv import codec
from strata.ops.qsa import select
from strata.ops.qsa.attend import attend
from support.kv import slow_decode
from support.launch import Kernels

EIGHT = codec("q8")
NH, NKV, HD, IH, ID, RATIO, BUDGET, PAGE, PAGES = 6, 2, 32, 2, 32, 4, 8, 64, 4
SHAPE = {"NH": NH, "NKV": NKV, "HD": HD, "RATIO": RATIO, "BUDGET": BUDGET, "SPLIT": False}


def _int(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Case:
    """A conversation with so many cells before the rows."""

    def __init__(self, committed: int, rows: int, room: int | None = None, *, eight: bool = False) -> None:
        random = torch.Generator().manual_seed(3)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        self.committed, self.rows, self.room = committed, rows, room or rows
        seen = committed + rows
        self.k, self.v = normal(256, NKV, HD)[:seen], normal(256, NKV, HD)[:seen]
        self.q, self.qg = normal(128, NH, HD)[: self.room], normal(128, NH, 2, HD)[: self.room]
        self.iq, self.block = normal(128, IH, ID)[: self.room], normal(64, ID)[: seen // RATIO]
        self.pages = torch.randperm(PAGES, generator=random).to(torch.int32)[None].repeat(2, 1)
        if eight:  # poisoned: a scale of such bytes is no number
            self.keys, self.values = torch.full((2, PAGES, PAGE, NKV, HD // 32, 36), 255, dtype=torch.uint8)
        else:
            self.keys, self.values = torch.full((2, PAGES, PAGE, NKV, HD), torch.nan)
        k, v = (EIGHT.encode(self.k), EIGHT.encode(self.v)) if eight else (self.k, self.v)
        self.blocks = torch.full((PAGES, PAGE // RATIO, ID), torch.nan)
        for cell in range(seen):
            page = self.pages[1, cell // PAGE]
            self.keys[page, cell % PAGE], self.values[page, cell % PAGE] = k[cell], v[cell]
        for b in range(seen // RATIO):
            self.blocks[self.pages[1, b * RATIO // PAGE], b % (PAGE // RATIO)] = self.block[b]

    def run(self, tile: int = 16, begin: int = 0) -> torch.Tensor:
        kernels, choosing = Kernels("strata.ops.prompt.attention"), Kernels("strata.ops.qsa.choose")
        where = (_int(1), _int(self.committed), _int(self.rows), self.pages, PAGES)
        gated = torch.full((self.room, NH * HD), torch.nan, dtype=torch.float16)
        kernels.dense[(-(-self.room * (NH // NKV) // tile), NKV)](
            self.q, self.keys, self.values, self.qg, *where, gated, BM=tile, **SHAPE
        )
        most = 64
        rows = self.room - begin
        scores, peaks = torch.full((rows, most), torch.nan), torch.full((rows, most // 8), torch.nan)
        kernels.score[(-(-rows // 32), 2)](
            self.iq, self.blocks, *where, scores, peaks, most, begin,
            IH=IH, ID=ID, RATIO=RATIO, BUDGET=BUDGET, ROWS=32, BLOCKS=32, TILE=8,
        )  # fmt: skip
        self.chosen = torch.full((rows, BUDGET), -1, dtype=torch.int32)
        seen = torch.arange(begin, self.room, dtype=torch.int32) + (self.committed + 1)
        seen[self.rows - begin :] = 0
        choosing.choose[(rows,)](
            scores, peaks, seen, most, seen, self.chosen, RATIO=RATIO, BUDGET=BUDGET, TILE=8, COUNTED=False, PDL=False
        )  # fmt: skip
        kernels.sparse[(rows, NKV)](
            self.q, self.keys, self.values, self.qg, self.chosen, *where, gated, begin, HEADS=16, **SHAPE
        )
        return gated


@pytest.mark.parametrize(("committed", "rows"), [(0, 1), (0, 33), (20, 30), (33, 20), (90, 5)])
def test_rows_attend_what_the_formula_selects(committed, rows):
    case = Case(committed, rows, rows + 3)
    out = case.run()
    for row in range(rows):
        seen = committed + row + 1
        allowed = select.select(case.iq[row : row + 1], case.block[: seen // RATIO], seen - 1, BUDGET, RATIO)
        o = attend(case.q[row : row + 1], case.k[:seen], case.v[:seen], allowed)
        expected = (o * torch.sigmoid(case.qg[row : row + 1, :, 1])).flatten()
        # The result has 11 bits; scores of float16 operands choose as float32 ones here.
        torch.testing.assert_close(out[row].float(), expected, rtol=2.0**-11, atol=1e-4)
    assert out[rows:].isnan().all()


# Across the budget of 32 cells, and beyond it.
@pytest.mark.parametrize(("committed", "rows"), [(20, 20), (90, 3)])
def test_rows_attend_what_the_bytes_say(committed, rows):
    """Eight bits, against float64 over the stored bytes (O12)."""
    case, plain = Case(committed, rows, rows + 3, eight=True), Case(committed, rows, rows + 3)
    out = case.run()
    plain.run()
    assert torch.equal(case.chosen, plain.chosen), "the indexer's keys have no types"
    (k, _), (v, _) = (slow_decode("q8", EIGHT.encode(x)) for x in (case.k, case.v))
    for row in range(rows):
        seen = committed + row + 1
        allowed = select.select(case.iq[row : row + 1], case.block[: seen // RATIO], seen - 1, BUDGET, RATIO)[0]
        cells = allowed[:seen].numpy().nonzero()[0]
        for h in range(NH):
            g, q = h // (NH // NKV), case.q[row, h].double().numpy()
            logits = k[cells, g] @ q * HD**-0.5
            p = np.exp(logits - logits.max())
            p /= p.sum()
            gate = 1 / (1 + np.exp(-case.qg[row, h, 1].double().numpy()))
            # Keys have 11 bits and queries 22, weights and values 11, and so has the result; the rest is float32's.
            moved = 2.0**-12 * (1 + 2.0**-6) * HD**-0.5 * np.abs(k[cells, g]) @ np.abs(q)
            relative = 2 * np.expm1(2 * moved.max()) + 2 * 2.0**-12 + 2.0**-16
            bound = (relative * (p @ np.abs(v[cells, g])) + 2.0**-24) * gate
            bound += 2.0**-11 * np.abs(p @ v[cells, g]) * gate + 2.0**-25
            got = out[row].view(NH, HD)[h].double().numpy()
            assert (np.abs(got - p @ v[cells, g] * gate) <= bound).all(), (row, h)
    assert out[rows:].isnan().all()


@pytest.mark.parametrize("eight", [False, True])
def test_company_and_slices_cannot_be_seen(eight):
    whole = Case(20, 30, eight=eight)
    together = whole.run()
    assert torch.equal(together.view(torch.int16), Case(20, 30, eight=eight).run(tile=64).view(torch.int16))
    later = Case(20, 30, eight=eight).run(begin=15)
    assert torch.equal(later[15:].view(torch.int16), together[15:].view(torch.int16))
    for row in (0, 14, 15, 29):
        one = Case(20 + row, 1)
        for name in ("keys", "values", "blocks", "pages"):
            setattr(one, name, getattr(whole, name))
        one.q, one.qg, one.iq = (x[row : row + 1] for x in (whole.q, whole.qg, whole.iq))
        assert torch.equal(one.run()[0].view(torch.int16), together[row].view(torch.int16))
