"""Elementwise functions give a row the bytes it has alone, whatever its width and company."""

import pytest
import torch

from strata.ops.elementwise import fixed, reference

FUNCTIONS = [
    *((reference, name) for name in ("sigmoid", "silu", "softplus", "cos", "sin")),
    *((fixed, name) for name in ("sigmoid", "silu", "softplus")),
]
IDS = [f"{module.__name__.rsplit('.', 1)[-1]}-{name}" for module, name in FUNCTIONS]


@pytest.mark.parametrize("width", [1, 6, 31, 32, 64, 100, 256, 1024, 10240], ids="width{}".format)
@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=IDS)
def test_rows_are_independent(module, name, width):
    f = getattr(module, name)
    x = torch.randn(70, width, generator=torch.Generator().manual_seed(width)) * 5
    together = f(x)
    for rows in (1, 2, 7, 33):
        for first in (0, 3, 37):
            assert torch.equal(f(x[first : first + rows]), together[first : first + rows])
    strided = x.repeat(1, 2)[:, :width]
    assert torch.equal(f(strided), together)
    assert torch.equal(f(x.unflatten(1, (width, 1)))[..., 0], together)


@pytest.mark.parametrize(("module", "name"), FUNCTIONS, ids=IDS)
def test_values(module, name):
    x = torch.linspace(-30, 30, 999)[:, None]
    exact = {
        "sigmoid": lambda v: 1 / (1 + torch.exp(-v)),
        "silu": lambda v: v / (1 + torch.exp(-v)),
        "softplus": lambda v: torch.log1p(torch.exp(v)),
        "cos": torch.cos,
        "sin": torch.sin,
    }[name](x.double())
    got = getattr(module, name)(x)
    # torch promises no bound; a few units of the result, and one of 1 where it is a difference of larger numbers
    assert torch.all((got - exact).abs() <= 4 * 2.0**-23 * exact.abs() + 2.0**-24)


def test_what_is_not_finite_stays_so():
    x = torch.tensor([float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, 200.0, -200.0])
    assert fixed.sigmoid(x)[:2].isnan().all()
    assert fixed.silu(x)[:2].isnan().all()
    assert fixed.softplus(x)[:2].isnan().all()
    assert fixed.sigmoid(x)[2:].tolist() == pytest.approx([1, 0, 0.5, 1, 0], abs=1e-37)
    assert fixed.softplus(x)[2:].tolist() == pytest.approx([float("inf"), 0, 0.6931472, 200, 0])
    assert fixed.silu(x[4:]).tolist() == pytest.approx([0, 200, 0])
