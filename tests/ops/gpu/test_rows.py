"""Rows of tables, against the dequantisers."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.formats import by_name, dequantise
from strata.ops import dependent
from strata.ops.planes import LAYOUTS, pack
from support.blocks import random_blocks
from support.launch import NATIVE, Kernels

ROWS, WIDTH = 5, 512


PDL = dependent.launch(torch.device("cuda" if NATIVE else "cpu"))


@pytest.mark.parametrize("integers", [torch.int32, torch.int64])
@pytest.mark.parametrize("name", sorted(LAYOUTS))
def test_rows_are_those_of_the_dequantiser(name, integers):
    from strata.ops.matvec.tables import codewords

    triton = Kernels("strata.ops.rows.gpu")

    kind = by_name(name)
    rng = np.random.default_rng(3)
    raw = random_blocks(kind, (ROWS, WIDTH), rng)
    ids = torch.tensor([4, 0, 4], dtype=integers)
    out = torch.full((3, WIDTH), torch.nan)
    planes = pack(name, torch.from_numpy(raw), WIDTH)
    blocks = WIDTH // 32
    triton.gather[(3, 2)](
        planes, codewords(name, torch.device("cpu")), ids, out, ROWS, blocks, KIND=name, BLOCKS=8, **PDL
    )
    expected = dequantise(kind, raw)[ids.numpy()]
    assert np.array_equal(out.numpy(), expected)
