"""The residual streams' kernels against the torch formulas."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.experts import judge
from strata.ops import dependent
from strata.ops.elementwise.reference import sigmoid, silu
from strata.ops.norm.reference import rms_grouped
from support.launch import NATIVE, Kernels, holds_quantised, poisoned

H, S, EPS, TOPK, PARTS = 96, 4, 1e-6, 3, 2
PDL = dependent.launch(torch.device("cuda" if NATIVE else "cpu"))
FLAT = {"enable_fp_fusion": False, **PDL}


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.hyper_connection.gpu")


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _due(rows: int, topk: int) -> tuple[torch.Tensor, ...]:
    """What is due in either form, and the strengths' parts."""
    if not topk:
        unused = torch.zeros(1)
        return _normal(rows, H), unused, unused, unused, _normal(rows, S, PARTS)
    weights = _normal(rows, topk).abs()
    return _normal(rows * topk, H), weights, _normal(rows, H), _normal(rows).abs(), _normal(rows, S, PARTS)


def _added(due: tuple[torch.Tensor, ...], rows: int, topk: int) -> torch.Tensor:
    """A block's output, [T, H]."""
    if not topk:
        return due[0]
    each = torch.cat((due[0].reshape(rows, topk, H), due[2][:, None]), 1)
    return torch.from_numpy(judge.combine(each.numpy(), torch.cat((due[1], due[3][:, None]), 1).numpy()))


def _write(kernels, residual, due, block, *, write=True, topk=0):
    rows, pieces = len(residual), -(-H // block)
    squares = torch.full((rows, S, pieces), torch.nan)
    kernels.write[(pieces, S, rows)](
        residual, *due, squares, H=H, S=S, BLOCK=block, PARTS=PARTS, WRITE=write, TOPK=topk, num_warps=1, **FLAT
    )
    return squares


def _norm(kernels, residual, squares, scales, block):
    rows, pieces = len(residual), -(-H // block)
    xn, quantised = torch.full((rows, S * H), torch.nan), poisoned(rows, S * H)
    kernels.norm[(pieces, S, rows)](
        residual, squares, scales, EPS, xn, *quantised,
        H=H, S=S, BLOCK=block, COUNT=pieces, ROOM=4, num_warps=block // 32, **FLAT,
    )  # fmt: skip
    return xn, quantised


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(("write", "topk"), [(False, 0), (True, 0), (True, TOPK)])
@pytest.mark.parametrize("block", [32, 64])
def test_write(kernels, rows, write, topk, block):
    before, due = _normal(rows, S * H), _due(rows, topk)
    residual = before.clone()
    squares = _write(kernels, residual, due, block, write=write, topk=topk)
    strength = 2 * sigmoid(due[-1].sum(-1) / S)
    out = _added(due, rows, topk)
    expected = before + (strength[:, :, None] * out[:, None, :]).flatten(1) if write else before
    # A sum of two, a sigmoid (under 4 ulp), one product and one sum: under ten roundings of numbers below 8.
    torch.testing.assert_close(residual, expected, rtol=0, atol=10 * 8 * 2.0**-24)
    of_stream = residual.unflatten(-1, (S, H)).double().square()
    pieces = [of_stream[..., first : first + block].sum(-1) for first in range(0, H, block)]
    torch.testing.assert_close(squares, torch.stack(pieces, -1).float(), rtol=(block + 2) * 2.0**-24, atol=0)


@pytest.mark.parametrize("block", [32, 64])
def test_norm(kernels, block):
    residual, scales = _normal(3, S * H), _normal(S * H)
    squares = torch.zeros(3, S, -(-H // block))
    squares[..., 0] = residual.unflatten(-1, (S, H)).square().sum(-1) - 7
    squares[..., -1] += 7
    xn, quantised = _norm(kernels, residual, squares, scales, block)
    # A mean of H squares in another order, a root, a division and a product: under 8 roundings in all but the mean.
    torch.testing.assert_close(xn, rms_grouped(residual, scales, S, EPS), rtol=(H + 8) * 2.0**-24, atol=1e-12)
    holds_quantised(xn, *quantised)


def test_experts_are_added_in_the_judges_order(kernels):
    """Strengths of one, streams of zero: what is left is the judge's weighted sum, to the byte."""
    rows, random = 2, np.random.default_rng(3)
    y = (random.standard_normal((rows, TOPK, H)) * 10.0 ** random.uniform(-20, 10, (rows, TOPK, 1))).astype(np.float32)
    due = (torch.from_numpy(y.reshape(-1, H)), *_due(rows, TOPK)[1:4], torch.zeros(rows, S, PARTS))
    residual = torch.zeros(rows, S * H)
    _write(kernels, residual, due, 32, topk=TOPK)
    assert torch.equal(residual, _added(due, rows, TOPK).repeat(1, S))


@pytest.mark.parametrize("part", [64, 128])
def test_low_and_inject(kernels, part):
    parts = -(-S * H // part)
    y, x, inject, xn = _normal(3, 64), torch.full((3, 64), torch.nan), _normal(S, S * H), _normal(3, S * H)
    quantised, shares = poisoned(3, 64), torch.full((3, S, parts), torch.nan)
    kernels.low[(1 + parts, 3)](
        y,
        x,
        *quantised,
        inject,
        xn,
        shares,
        R=64,
        S=S,
        BLOCK=64,
        WIDTH=S * H,
        PART=part,
        PARTS=parts,
        num_warps=2,
        **FLAT,
    )
    # An exponential, a sum and a division: under 6 ulp.
    torch.testing.assert_close(x, silu(y / S), rtol=6 * 2.0**-23, atol=1e-9)
    holds_quantised(x, *quantised)
    # A sum of S*H products, each below 16 here.
    torch.testing.assert_close(shares.sum(-1), xn @ inject.T, rtol=0, atol=S * H * 16 * 2.0**-24)


def test_low_without_inject(kernels):
    y, x, quantised = _normal(2, 64), torch.full((2, 64), torch.nan), poisoned(2, 64)
    unused = torch.zeros(1)
    kernels.low[(1, 2)](
        y,
        x,
        *quantised,
        unused,
        unused,
        unused,
        R=64,
        S=S,
        BLOCK=64,
        WIDTH=S * H,
        PART=64,
        PARTS=6,
        num_warps=2,
        **FLAT,
    )
    holds_quantised(x, *quantised)
    assert unused == 0


@pytest.mark.parametrize("block", [32, 64])
def test_mix(kernels, block):
    gates, xn = _normal(3, S * H), _normal(3, S * H)
    m, (q, s, sums) = torch.full((3, H), torch.nan), poisoned(3, H)
    kernels.mix[((H + block - 1) // block, 3)](
        gates, xn, m, q, s, sums, H=H, S=S, BLOCK=block, num_warps=block // 32, **FLAT
    )
    expected = (sigmoid(gates) * xn).unflatten(-1, (S, H)).mean(1)
    # Four products of numbers below 4 and their sum: eight roundings, and those of the sigmoid (under 4 ulp).
    torch.testing.assert_close(m, expected, rtol=0, atol=4 * 12 * 2.0**-24)
    holds_quantised(m, q, s, sums)


def test_spread(kernels):
    x, residual = _normal(3, H), torch.full((3, S * H), torch.nan)
    kernels.spread[(2, 3)](x, residual, H=H, S=S, BLOCK=64, **PDL)
    assert torch.equal(residual, x.repeat(1, S))


@pytest.mark.parametrize("topk", [0, TOPK])
def test_rows_do_not_depend_on_company(kernels, topk):
    scales, before, due = _normal(S * H), _normal(8, S * H), _due(8, topk)
    residual = before.clone()
    together, _ = _norm(kernels, residual, _write(kernels, residual, due, 64, topk=topk), scales, 64)
    for row in range(8):
        own = slice(row, row + 1)
        pairs = slice(row * max(topk, 1), (row + 1) * max(topk, 1))
        mine = (due[0][pairs], *(x[own] if topk else x for x in due[1:4]), due[4][own])
        alone = before[own].clone()
        xn, _ = _norm(kernels, alone, _write(kernels, alone, mine, 64, topk=topk), scales, 64)
        assert torch.equal(xn, together[own])
        assert torch.equal(alone, residual[own])
