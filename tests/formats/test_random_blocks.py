"""The test helper itself: random blocks must be usable weights."""

import numpy as np
import pytest

from strata.formats import TYPES, dequantise
from support.blocks import random_blocks


@pytest.mark.parametrize("scale", [0.02, 0.07, 1.0])
@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_random_blocks_have_the_deviation_asked_for(kind, scale):
    raw = random_blocks(kind, (2, 60, 512), np.random.default_rng(7), scale)
    assert raw.shape == (2, 60, kind.row_bytes(512))
    w = dequantise(kind, raw)
    # 61,440 weights in at least 240 blocks whose scales vary by 28%: the estimate itself is good to about 4%.
    assert 0.85 * scale < w.std() < 1.15 * scale
    assert abs(w.mean()) < 0.1 * scale
    assert len(np.unique(w)) >= 15
