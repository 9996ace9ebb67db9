"""The residual streams' kernels against the torch formulas."""

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.elementwise.reference import sigmoid, silu
from strata.ops.norm.reference import rms_grouped
from support.launch import Kernels, holds_quantised, poisoned

H, S, BLOCK, EPS = 96, 4, 128, 1e-6


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.hyper_connection.gpu")


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("write", [False, True])
def test_write_and_norm(kernels, rows, write):
    before, out, due, norm = _normal(rows, S * H), _normal(rows, H), _normal(rows, S, S), _normal(S * H)
    inject, shares = _normal(S, S * H), torch.full((rows, S, S), torch.nan)
    residual, xn = before.clone(), torch.full((rows, S * H), torch.nan)
    q, s, sums = poisoned(rows, S * H)
    kernels.write_norm[(rows, S)](
        residual, out, due, norm, EPS, inject, shares, xn, q, s, sums, H=H, S=S, BLOCK=BLOCK, WRITE=write, INJECT=True
    )
    strength = 2 * sigmoid(due.sum(-1) / S)
    expected = before + (strength[:, :, None] * out[:, None, :]).flatten(1) if write else before
    # A sum of four, a sigmoid (under 4 ulp), one product and one sum: under ten roundings of numbers below 8.
    torch.testing.assert_close(residual, expected, rtol=0, atol=10 * 8 * 2.0**-24)
    # A mean of H squares in another order, a root, a division and a product: under 8 roundings in all but the mean.
    torch.testing.assert_close(xn, rms_grouped(residual, norm, S, EPS), rtol=(H + 8) * 2.0**-24, atol=1e-12)
    holds_quantised(xn, q, s, sums)
    # A sum of S*H products, each below 16 here.
    torch.testing.assert_close(shares.sum(-1), xn @ inject.T, rtol=0, atol=S * H * 16 * 2.0**-24)
    settled = before.clone()
    kernels.write[(rows, S)](settled, out, due, H=H, S=S, BLOCK=BLOCK)
    assert torch.equal(settled, residual) or not write


def test_low(kernels):
    y, x = _normal(3, 64), torch.full((3, 64), torch.nan)
    q, s, sums = poisoned(3, 64)
    kernels.low[(3,)](y, x, q, s, sums, R=64, S=S, BLOCK=64)
    # An exponential, a sum and a division: under 6 ulp.
    torch.testing.assert_close(x, silu(y / S), rtol=6 * 2.0**-23, atol=1e-9)
    holds_quantised(x, q, s, sums)


@pytest.mark.parametrize("block", [32, 64])
def test_mix(kernels, block):
    gates, xn = _normal(3, S * H), _normal(3, S * H)
    m, (q, s, sums) = torch.full((3, H), torch.nan), poisoned(3, H)
    kernels.mix[(3, (H + block - 1) // block)](gates, xn, m, q, s, sums, H=H, S=S, BLOCK=block)
    expected = (sigmoid(gates) * xn).unflatten(-1, (S, H)).mean(1)
    # Four products of numbers below 4 and their sum: eight roundings, and those of the sigmoid (under 4 ulp).
    torch.testing.assert_close(m, expected, rtol=0, atol=4 * 12 * 2.0**-24)
    holds_quantised(m, q, s, sums)


def test_rows_do_not_depend_on_company(kernels):
    norm, residual = _normal(S * H), _normal(8, S * H)
    together, alone = torch.empty(8, S * H), torch.empty(8, S * H)
    q, s, sums = poisoned(8, S * H)
    unused = torch.empty(8, H)
    kernels.write_norm[(8, S)](
        residual,
        unused,
        unused,
        norm,
        EPS,
        unused,
        unused,
        together,
        q,
        s,
        sums,
        H=H,
        S=S,
        BLOCK=BLOCK,
        WRITE=False,
        INJECT=False,
    )
    for row in range(8):
        piece = slice(row, row + 1)
        kernels.write_norm[(1, S)](
            residual[piece],
            unused,
            unused,
            norm,
            EPS,
            unused,
            unused,
            alone[piece],
            q,
            s,
            sums,
            H=H,
            S=S,
            BLOCK=BLOCK,
            WRITE=False,
            INJECT=False,
        )
    assert torch.equal(together, alone)
