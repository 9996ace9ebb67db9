"""Attention of windows over keys and values in eight bits: the CPU's bytes, and float64 over what they say (O12)."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.model.kv import codec
from support.kv import U, slow_decode
from support.launch import NATIVE, Kernels
from support.window_attention import BUDGET, CELLS, HD, NH, NKV, PARTS, RATIO, Case

EIGHT = codec("q8")
SPLITS = [False, True] if NATIVE else [False]
"""On tensor cores, too, where there are some: the interpreter's bfloat16 is wrong."""


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.qsa.gpu")


def stored(case: Case, conversation: int, cells: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of some cells as they lie in their pages."""
    places = [case.place(conversation, cell) for cell in cells]
    return tuple(torch.stack([table[place] for place in places]) for table in (case.keys, case.values))


def oracle(case: Case, row: int, lost: float) -> tuple[np.ndarray, np.ndarray]:
    """Float64 attention of a row over the stored bytes it chose, gated, and a bound on what else rounds.

    Args:
        case: after its run.
        row: of its window.
        lost: of the float32 side of a product, relative: nothing, or what two bfloat16 lack.
    """
    i, seen = int(case.owner[row]), case.cells()[row] + 1
    complete = seen // RATIO
    chosen = case.chosen[row].tolist() if complete > BUDGET else range(complete)
    cells = [b * RATIO + j for b in chosen for j in range(RATIO)] + list(range(complete * RATIO, seen))
    (k, _), (v, _) = (slow_decode("q8", x) for x in stored(case, i, cells))
    q, gates = case.q_out[row].double().numpy(), case.qg[row, :, 1].double().numpy()
    out, bound, scale = np.zeros((NH, HD)), np.zeros((NH, HD)), HD**-0.5
    for h in range(NH):
        g = h // (NH // NKV)
        logits = k[:, g] @ q[h] * scale
        p = np.exp(logits - logits.max())
        p /= p.sum()
        # Sums of HD products in float32, times the scale of each block and of the head; the largest is taken off.
        moved = ((HD + 4) * U + lost) * scale * np.abs(k[:, g]) @ np.abs(q[h]) + 4 * U * np.abs(logits).max()
        # Of each weight, in the sums over cells and parts, and twice in their quotient; exponentials within 2 ulp.
        relative = 2 * np.expm1(2 * moved.max()) + (2 * (len(cells) + PARTS) + 16) * U + lost
        gate = 1 / (1 + np.exp(-gates[h]))
        out[h] = p @ v[:, g] * gate
        bound[h] = (relative + 8 * U) * (p @ np.abs(v[:, g])) * gate
    return out.reshape(-1), bound.reshape(-1)


# Below and above the budget of 32 cells, of 1 to 8 rows, of one conversation and of two; parts of 16 cells.
CASES = [([2], [4]), ([28], [8]), ([37, 150], [1, 3])]
if NATIVE:
    CASES += [([37], [1]), ([61], [6]), ([0], [1]), ([150], [8])]


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize(("committed", "rows"), CASES)
def test_a_window_attends_what_the_bytes_say(kernels, committed, rows, split):
    case, plain = Case(committed, rows, torch.uint8), Case(committed, rows)
    out = case.run(kernels, split=split)
    plain.run(kernels)
    assert torch.equal(case.chosen, plain.chosen), "the indexer's keys have no types"
    for name in ("raw", "blocks", "iq_out"):
        assert torch.equal(getattr(case, name).nan_to_num(9), getattr(plain, name).nan_to_num(9))
    for row, cell in enumerate(case.cells()):
        expected, bound = oracle(case, row, 2.0**-16 if split else 0.0)
        assert (np.abs(out[row].double().numpy() - expected) <= bound).all(), row
        assert split or bound.max() < 1e-3 * np.abs(expected).max(), "the bound says something"
        i = int(case.owner[row])
        # The float32 that the same kernel leaves elsewhere, as the CPU encodes it.
        here = case.place(i, cell)
        assert torch.equal(case.keys[here], EIGHT.encode(plain.keys[here][None])[0])
        assert torch.equal(case.values[here], EIGHT.encode(case.v[i][cell][None])[0])


def test_rows_do_not_depend_on_company(kernels):
    """Eight rows of one window, across the budget and a part, against the same rows one window each."""
    whole, single = Case([28], [8], torch.uint8), Case([28], [8], torch.uint8)
    together, alone = whole.run(kernels), []
    for row in range(8):
        one = Case([28 + row], [1], torch.uint8)
        for name in ("k", "v", "ik", "norms", "pages", "keys", "values", "raw", "blocks"):
            setattr(one, name, getattr(single, name))
        one.qg, one.iq = whole.qg[row : row + 1], whole.iq[row : row + 1]
        alone.append(one.run(kernels))
    assert torch.equal(together, torch.cat(alone))
    assert torch.equal(whole.keys, single.keys)
    assert torch.equal(whole.values, single.values)
    assert CELLS < 28 < BUDGET * RATIO < 36


def test_corners_are_stored_as_on_the_cpu(kernels):
    """Zeros, numbers too small for a scale, subnormal and huge ones, ties; and what is no number reads back so."""
    rng, case = np.random.default_rng(2), Case([0], [8], torch.uint8)
    values = rng.standard_normal((8, NKV, HD)).astype(np.float32)
    values[0] = 0.0
    values[1] = -0.0
    values[2] *= np.float32(2.0**-101)
    values[3, 0, :32], values[3, 1] = 1e-40, values[3, 1] * np.float32(1e38)
    values[4, :, ::7] = 1e5
    values[5, :, :32] = np.arange(32) * 2 - 31  # the largest is 31: codes in steps of 127 / 31
    values[6, 0, 3], values[6, 1, 40] = np.nan, -np.inf
    values[7, :, 32:] = np.linspace(-127, 127, HD - 32) + 0.5
    case.v[0][:8] = torch.from_numpy(values)
    with np.errstate(invalid="ignore"):  # the interpreter's NumPy says that infinity times 0 is no number
        case.run(kernels, numbers=False)
    for cell in range(8):
        found, expected = case.values[case.place(0, cell)], EIGHT.encode(torch.from_numpy(values[cell : cell + 1]))[0]
        numbers = EIGHT.decode(found[None])[0]
        assert torch.equal(torch.isfinite(numbers), torch.isfinite(EIGHT.decode(expected[None])[0]))
        known = torch.isfinite(expected[..., :4].contiguous().view(torch.float32))[..., 0]
        assert torch.equal(found[known], expected[known]), cell
        assert torch.equal(found[..., 4:], expected[..., 4:])
