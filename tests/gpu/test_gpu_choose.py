"""The choice of blocks at the released model's shapes, with as many warps as it has there."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.ops.dependent import launch
from strata.ops.gpu import layers
from strata.ops.qsa.choose import choose
from support.choosing import KINDS, counted_by_bins, largest, peaks_of, scores_of

pytestmark = pytest.mark.gpu

BUDGET, RATIO, TILE = 512, 4, 8
LENGTHS = (513, 2048, 2049, 4096, 4097, 8192, 8226, 20000, 32767, 32768, 32769, 40000, 65536)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("kind", [*KINDS, "of four heads"])
def test_the_largest_of_many_blocks_are_chosen(kind, counted):
    device, most = torch.device("cuda"), max(LENGTHS)
    rows = [_scores(kind, count) for count in LENGTHS]
    scores, peaks = torch.full((len(rows), most), torch.nan), torch.full((len(rows), most // TILE), torch.nan)
    for row, values in enumerate(rows):
        scores[row, : len(values)] = torch.from_numpy(values)
        peaks[row, : -(-len(values) // TILE)] = torch.from_numpy(peaks_of(values, TILE))
    bins = torch.from_numpy(np.stack([counted_by_bins(values) for values in rows]))
    seen = torch.tensor([count * RATIO + 1 for count in LENGTHS], dtype=torch.int32)
    chosen = torch.full((len(rows), BUDGET), -1, dtype=torch.int32, device=device)
    shape = {"RATIO": RATIO, "BUDGET": BUDGET, "TILE": TILE, "COUNTED": counted}
    choose[(len(rows),)](
        scores.to(device), peaks.to(device), bins.to(device), most, seen.to(device), chosen, **shape,
        **launch(device), num_warps=layers.CHOOSERS, maxnreg=layers.CHOOSING_REGISTERS,
    )  # fmt: skip
    for row, values in enumerate(rows):
        assert np.array_equal(chosen[row].cpu(), largest(values, BUDGET)), LENGTHS[row]


def _scores(kind: str, count: int) -> np.ndarray:
    """As of `strata.ops.qsa.gpu.score`, of random queries and keys; or of a kind."""
    if kind in KINDS:
        return scores_of(kind, count)
    random = np.random.default_rng(count)
    keys, queries = random.standard_normal((count, 128)), random.standard_normal((128, 4)) * 128**-0.5
    return np.maximum(keys @ queries, 0).sum(1).astype(np.float32)
