"""Matrices written out in float16 against the file's own arithmetic in float64."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.formats import by_name, dequantise
from strata.ops.matvec.tables import codewords
from strata.ops.planes import LAYOUTS, pack
from support.blocks import random_blocks
from support.launch import Kernels

SCALE = 64


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.prompt.expand")


def _expanded(kernels, name: str, raw: np.ndarray, width: int, tile: tuple[int, int]) -> np.ndarray:
    blocks, (tall, wide) = width // 32, tile
    out = torch.full((len(raw), width), torch.nan, dtype=torch.float16)
    kernels.planes[(-(-len(raw) // tall), -(-blocks // wide))](
        pack(name, torch.from_numpy(raw), width), codewords(name, torch.device("cpu")), torch.ones(1), out, len(raw),
        blocks, KIND=name, SCALED=False, H=tall, L=wide, EVEN=blocks % wide == 0,
    )  # fmt: skip
    return out.numpy()


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_type(kernels, name):
    """Scale, and minimum, are rounded to float16, then the product, then the sum: 2^-11 of each."""
    raw = random_blocks(name, (20, 512), np.random.default_rng(list(name.encode())))
    exact = dequantise(by_name(name), raw).astype(np.float64) * SCALE
    got = _expanded(kernels, name, raw, 512, (16, 4)).astype(np.float64)
    # A minimum is as large as the codes' part where they cancel; codes are at most 31 steps, minimums as random.
    size = np.abs(exact).reshape(20, -1, 32).max(-1).repeat(32, -1) if "minimum" in _form(name) else np.abs(exact)
    assert np.all(np.abs(got - exact) <= 3 * 2.0**-11 * size + 2.0**-24)


def _form(name: str) -> str:
    from strata.ops.matvec.decoders import form

    return form(name)


def test_tiles_cannot_be_seen(kernels):
    raw = random_blocks("Q6_K", (9, 768), np.random.default_rng(3))
    a, b = (_expanded(kernels, "Q6_K", raw, 768, tile) for tile in ((16, 8), (4, 16)))
    np.testing.assert_array_equal(a.view(np.uint16), b.view(np.uint16))


def test_floats_saturate(kernels):
    w = torch.tensor([0.5, -2000.0, 1e30, torch.nan, 1e-6, 1022.0])
    out = torch.full((6,), 7, dtype=torch.float16)
    kernels.floats[(1,)](w, out, 6, BLOCK=8)
    assert out[[0, 1, 2, 5]].tolist() == [32, -65504, 65504, 1022 * 64]
    assert out[3].isnan()
    assert abs(float(out[4]) - 64e-6) < 64e-6 * 2.0**-11
