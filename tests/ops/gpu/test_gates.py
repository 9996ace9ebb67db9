"""The product `up` with the gated mean behind it, against the same in two launches, byte for byte."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.formats import by_name
from strata.ops import dependent
from strata.ops.hyper_connection.gates import gated_mean
from strata.ops.matvec.triton import empty_activations, matrix, product, quantise
from support.blocks import random_blocks
from support.launch import NATIVE, Kernels

H, S = 64, 4
DEVICE = torch.device("cuda" if NATIVE else "cpu")


def _case(name: str, width: int, rows: int):
    """`up` of moderate scales, quantised rows, and normalised streams."""
    random = np.random.default_rng([width, rows, *name.encode()])
    raw = torch.from_numpy(random_blocks(by_name(name), (S * H, width), random)).to(DEVICE)
    scale = torch.tensor([0.5], device=DEVICE) if name == "NVFP4" else None
    x = torch.from_numpy(random.standard_normal((rows, width)).astype(np.float32) / 64).to(DEVICE)
    xn = torch.from_numpy(random.standard_normal((rows, S * H)).astype(np.float32)).to(DEVICE)
    return matrix(name, raw, width, scale), quantise(x), xn


@pytest.mark.parametrize(
    ("name", "width", "rows"),
    [
        ("Q8_0", 320, 1),
        ("IQ4_NL", 320, 1),
        ("NVFP4", 64, 1),
        ("Q6_K", 256, 1),
        ("Q8_0", 64, 3),
        ("Q8_0", 32, 7),
    ],
)
def test_bytes_of_a_product_and_the_mean(name, width, rows):
    up, x, xn = _case(name, width, rows)
    nan = torch.full((rows, H), torch.nan, device=DEVICE)
    m, out = nan.clone(), empty_activations(rows, H, DEVICE)
    gated_mean(up, x, xn, m, out)
    expected, room = nan.clone(), empty_activations(rows, H, DEVICE)
    Kernels("strata.ops.hyper_connection.gpu").mix[(2, rows)](
        product(up, x), xn, expected, room.q, room.s, room.z,
        H=H, S=S, BLOCK=32, num_warps=1, enable_fp_fusion=False, **dependent.launch(DEVICE),
    )  # fmt: skip
    assert torch.isfinite(expected).all()
    for found, wanted in zip((m, out.q, out.s, out.z), (expected, room.q, room.s, room.z), strict=True):
        assert torch.equal(found, wanted)
