"""Sparse attention's kernels against the torch formulas."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.ops.elementwise.reference import sigmoid
from strata.ops.norm.reference import rms
from strata.ops.qsa import select
from strata.ops.qsa.attend import attend
from strata.ops.qsa.pages import RING
from strata.ops.rope.reference import cos_sin, rotate
from support.choosing import KINDS, counted_by_bins, largest, peaks_of, scores_of
from support.launch import Kernels
from support.window_attention import BINS, BUDGET, EPS, HD, ID, LAYOUT, PAGE, RATIO, ROPE, SELECT, Case


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.qsa.gpu")


@pytest.fixture(scope="module")
def choosing():
    return Kernels("strata.ops.qsa.choose")


CASES = [([0], [1]), ([2], [4]), ([31], [3]), ([37, 150], [2, 3]), ([63, 35, 90], [1, 4, 3])]


@pytest.mark.parametrize("joined", [False, True], ids=["each", "together"])
@pytest.mark.parametrize(("committed", "rows"), CASES)
def test_a_window_attends_what_the_formula_selects(kernels, committed, rows, joined):
    """The indexer's queries and keys come from one product or from two."""
    case = Case(committed, rows)
    out = case.run(kernels, joined=joined)
    cells = case.cells()
    for row, cell in enumerate(cells):
        i = int(case.owner[row])
        seen = cell + 1
        iq = rotate(rms(case.iq[row : row + 1], case.norms[2], EPS), *cos_sin(torch.tensor([[cell] * 3]), ROPE))
        blocks = torch.stack([case.block(i, b) for b in range(seen // RATIO)]) if seen >= RATIO else torch.zeros(0, ID)
        allowed = select.select(iq, blocks, cell, BUDGET, RATIO)
        if seen // RATIO > BUDGET:
            picked = [b for b in range(seen // RATIO) if allowed[0, b * RATIO]]
            assert case.chosen[row].tolist() == picked
        angles = cos_sin(torch.tensor([[cell] * 3]), ROPE)
        q = rotate(rms(case.qg[row : row + 1, :, 0], case.norms[0], EPS), *angles)
        o = attend(q, case.rotated(case.k[i], 1, list(range(seen))), case.v[i][:seen], allowed)
        expected = (o * sigmoid(case.qg[row : row + 1, :, 1])).flatten()
        # Sums of HD and of 35 terms in another order, 2^-24 of values below 8 each.
        torch.testing.assert_close(out[row], expected, rtol=0, atol=(HD + 35) * 8 * 2.0**-24)


def test_new_cells_and_completed_blocks_are_in_their_pages(kernels):
    case = Case([37, 62], [4, 3])
    before = case.blocks.clone()
    case.run(kernels)
    for i, (committed, rows) in enumerate(zip(case.committed, case.rows, strict=True)):
        for cell in range(committed, committed + rows):
            page = int(case.pages[case.slots[i], cell // PAGE])
            torch.testing.assert_close(case.keys[page, cell % PAGE], case.rotated(case.k[i], 1, [cell])[0])
            assert torch.equal(case.values[page, cell % PAGE], case.v[i][cell])
            assert torch.equal(case.raw[case.slots[i], cell % RING], case.ik[i][cell])
        for block in range(committed // RATIO, (committed + rows) // RATIO):
            page = int(case.pages[case.slots[i], block // (PAGE // RATIO)])
            got = case.blocks[page, block % (PAGE // RATIO)]
            torch.testing.assert_close(got, case.block(i, block))
            before[page, block % (PAGE // RATIO)] = got
    assert torch.equal(case.blocks.nan_to_num(9), before.nan_to_num(9)), "nothing else was written"


def test_rows_do_not_depend_on_company(kernels):
    """Three rows of one window, against the same rows one window each."""
    whole, single = Case([37], [3]), Case([37], [3])
    together = whole.run(kernels)
    alone = []
    for row in range(3):
        one = Case([37 + row], [1])
        for name in ("k", "v", "ik", "norms", "pages", "keys", "values", "raw", "blocks"):
            setattr(one, name, getattr(single, name))
        one.qg, one.iq = whole.qg[row : row + 1], whole.iq[row : row + 1]
        alone.append(one.run(kernels))
    assert torch.equal(together, torch.cat(alone))
    for name in ("keys", "values", "raw", "blocks"):
        assert torch.equal(getattr(whole, name).nan_to_num(9), getattr(single, name).nan_to_num(9))


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_choosing_is_a_stable_sort(choosing, kind, counted):
    """Against a sort by falling score, then rising number, of blocks met at once, in tiles, and in tiles of tiles."""
    lengths, most = (9, 31, 32, 33, 64, 65, 129, 250, 512, 513, 777, 4090, 4096), 4096
    select = {"TILE": 8, "COUNTED": counted, "PDL": False}
    rows = [scores_of(kind, count) for count in lengths]
    scores = torch.full((len(lengths), most), torch.nan)
    peaks = torch.full((len(lengths), most // 8), torch.nan)
    for row, values in enumerate(rows):
        scores[row, : len(values)] = torch.from_numpy(values)
        tiles = peaks_of(values, 8)
        peaks[row, : len(tiles)] = torch.from_numpy(tiles)
    bins = torch.from_numpy(np.stack([counted_by_bins(values) for values in rows]))
    chosen = torch.full((len(lengths), BUDGET), -1, dtype=torch.int32)
    seen = torch.tensor([count * RATIO + 1 for count in lengths], dtype=torch.int32)
    choosing.choose[(len(lengths),)](scores, peaks.clone(), bins, most, seen, chosen, **LAYOUT, **select)
    for row, values in enumerate(rows):
        assert chosen[row].tolist() == largest(values, BUDGET).tolist(), lengths[row]


def test_numbers_that_are_none_choose_blocks_that_exist(choosing):
    """NaN of either sign has no order, but what follows reads every chosen block."""
    scores = torch.rand((1, 64))
    scores[0, ::3] = torch.nan
    scores[0, 1::3] = -torch.nan
    chosen = torch.full((1, BUDGET), -1, dtype=torch.int32)
    none = torch.zeros((1, BINS), dtype=torch.int32)
    choosing.choose[(1,)](scores, torch.rand((1, 16)), none, 64, torch.tensor([30 * RATIO], dtype=torch.int32), chosen,
                         **LAYOUT, **SELECT)  # fmt: skip
    assert len(set(chosen[0].tolist())) == BUDGET
    assert all(0 <= block < 30 for block in chosen[0].tolist())
