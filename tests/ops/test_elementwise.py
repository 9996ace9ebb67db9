"""Elementwise functions give a row the bytes it has alone, whatever its width and company."""

import pytest
import torch

from strata.ops.elementwise import reference

FUNCTIONS = ("sigmoid", "silu", "softplus", "cos", "sin")


@pytest.mark.parametrize("width", [1, 6, 31, 32, 64, 100, 256, 1024, 10240], ids="width{}".format)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_are_independent(name, width):
    f = getattr(reference, name)
    x = torch.randn(70, width, generator=torch.Generator().manual_seed(width)) * 5
    together = f(x)
    for rows in (1, 2, 7, 33):
        for first in (0, 3, 37):
            assert torch.equal(f(x[first : first + rows]), together[first : first + rows])
    strided = x.repeat(1, 2)[:, :width]
    assert torch.equal(f(strided), together)
    assert torch.equal(f(x.unflatten(1, (width, 1)))[..., 0], together)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values(name):
    x = torch.linspace(-30, 30, 999)[:, None]
    exact = {
        "sigmoid": lambda v: 1 / (1 + torch.exp(-v)),
        "silu": lambda v: v / (1 + torch.exp(-v)),
        "softplus": lambda v: torch.log1p(torch.exp(v)),
        "cos": torch.cos,
        "sin": torch.sin,
    }[name](x.double())
    got = getattr(reference, name)(x)
    # torch promises no bound; a few units of the result, and one of 1 where it is a difference of larger numbers
    assert torch.all((got - exact).abs() <= 4 * 2.0**-23 * exact.abs() + 2.0**-24)
