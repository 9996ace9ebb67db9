"""Several matrices in one launch: every one has the bytes of its own product."""

import numpy as np
import pytest
import torch

from strata.errors import FormatError
from strata.ops.matvec import floats
from strata.ops.matvec import triton as matvec
from strata.ops.matvec.together import product_all
from support.corners import activations, matrix


def _case(kinds, rows, width=256, sizes=(70, 33, 5)):
    rng = np.random.default_rng([rows, len(kinds)])
    x = torch.from_numpy(np.ascontiguousarray(activations(width, rng)[:rows]))
    made = []
    for kind, n in zip(kinds, sizes, strict=False):
        if isinstance(kind, str):
            made.append(matvec.matrix(kind, torch.from_numpy(matrix(kind, (n, width), rng)), width))
        else:
            made.append(torch.from_numpy(rng.standard_normal((n, width)).astype(np.float32)).to(kind))
    return x, matvec.quantise(x), made


F32, BF16 = torch.float32, torch.bfloat16
CASES = [
    (("Q5_K", "Q6_K", F32), 1, True),
    ((F32, "IQ3_XXS"), 4, True),
    (("Q5_K", BF16, "Q5_K", "Q8_0", BF16), 2, True),
    (("Q8_0",), 3, True),
    (("Q8_0", "Q8_0", "Q8_0", "Q8_0"), 2, False),  # more than a launch has room for
    ((F32, BF16, "Q8_0"), 1, False),  # of two float types
    ((F32, F32), 2, False),
]


@pytest.mark.parametrize(("kinds", "rows", "one_launch"), CASES, ids=str)
def test_the_bytes_of_single_products(kinds, rows, one_launch, monkeypatch):
    x, quantised, made = _case(kinds, rows, sizes=(70, 33, 5, 64, 12))
    with monkeypatch.context() as patched:
        if one_launch:
            patched.setattr("strata.ops.matvec.together.product", None)
            patched.setattr("strata.ops.matvec.together.floats.product", None)
        found = product_all(x, quantised, made)
    assert len(found) == len(made)
    for w, y in zip(made, found, strict=True):
        alone = floats.product(w, x) if isinstance(w, torch.Tensor) else matvec.product(w, quantised)
        np.testing.assert_array_equal(y.numpy().view(np.uint32), alone.numpy().view(np.uint32))


def test_a_scale_of_a_whole_matrix():
    x, quantised, (w,) = _case(("NVFP4",), 2)
    scaled = matvec.PlaneMatrix(w.type, w.rows, w.width, w.data, torch.tensor([0.37]))
    assert torch.equal(product_all(x, quantised, [scaled])[0], matvec.product(scaled, quantised))


def test_operands_that_do_not_fit_are_refused():
    x, quantised, made = _case(("Q8_0", F32), 2)
    with pytest.raises(FormatError, match="not quantised"):
        product_all(x, None, made)
    with pytest.raises(FormatError, match="width 128"):
        product_all(x, quantised, [made[0], torch.zeros((4, 128))])
    with pytest.raises(FormatError, match="1 to 8"):
        product_all(x.repeat(5, 1), quantised, made)
