"""Float matrices in the interpreter: near float64, and no row depends on its neighbours."""

import numpy as np
import pytest
import torch

from strata.errors import FormatError
from strata.ops.matvec import floats, reference


def _case(dtype, n, width, rows):
    generator = torch.Generator().manual_seed(width + n)
    w = torch.randn((n, width), generator=generator).to(dtype)
    return w, torch.randn((rows, width), generator=generator)


@pytest.mark.parametrize("width", [48, 320, 2560, 4100])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_near_the_exact_sum(dtype, width):
    """Two roundings a product and one for every sum on the way: of K / C steps and the tree's levels."""
    w, x = _case(dtype, 5, width, 3)
    found = floats.product(w, x, torch.full((3, 5), float("nan")))
    lanes = floats.shape(width)[0]
    roundings = 2 * -(-width // lanes) + lanes.bit_length()
    limit = roundings * 2.0**-24 * (x.double().abs() @ w.double().abs().T)
    assert ((found.double() - x.double() @ w.double().T).abs() <= limit).all()
    assert torch.allclose(found, reference.float_product(w, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("width", [320, 1024, 4096])
def test_a_row_does_not_depend_on_the_others(width):
    w, x = _case(torch.bfloat16, 6, width, 8)
    whole = floats.product(w, x)
    for t in (0, 3, 7):
        alone = floats.product(w, x[t : t + 1].contiguous(), tiles=2)
        np.testing.assert_array_equal(alone.numpy(), whole[t : t + 1].numpy())


def test_operands_that_do_not_fit_are_refused():
    w, x = _case(torch.float32, 4, 64, 1)
    with pytest.raises(FormatError, match="width 64"):
        floats.product(w, x[:, :32].contiguous())
    with pytest.raises(FormatError, match="float64"):
        floats.product(w.double(), x)
