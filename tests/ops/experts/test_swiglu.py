"""The exponential and SwiGLU in Triton against the judge, byte for byte."""

import numpy as np
import torch
import triton
import triton.language as tl

from strata.experts import judge
from strata.ops.experts.swiglu import exp, swiglu


@triton.jit
def _both(x, up, e, h, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    value = tl.load(x + i)
    tl.store(e + i, exp(value))
    tl.store(h + i, swiglu(value, tl.load(up + i)))


def test_bytes_of_the_judge():
    rng = np.random.default_rng(0)
    x = np.linspace(-90, 90, 8192, dtype=np.float32)
    x[:4096] = (rng.standard_normal(4096) * 10.0 ** rng.uniform(-40, 4, 4096)).astype(np.float32)
    x[:6] = 0, -0.0, -87, 88, -1e30, 1e30
    up = rng.standard_normal(8192).astype(np.float32)
    e, h = torch.full((8192,), float("nan")), torch.full((8192,), float("nan"))
    _both[(1,)](torch.from_numpy(x), torch.from_numpy(up), e, h, SIZE=8192)
    np.testing.assert_array_equal(e.numpy().view(np.uint32), judge.exp(x).view(np.uint32))
    np.testing.assert_array_equal(h.numpy().view(np.uint32), (judge.silu(x) * up).view(np.uint32))
