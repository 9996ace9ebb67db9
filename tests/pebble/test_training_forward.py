"""The training forward pass computes the model and nothing else."""

import pytest
import torch

from pebble.net.trunk import Pebble
from pebble.shape import PEBBLE, TINY
from support.pebble_oracle import fill, oracle, stable_topk


def _model(shape, seed=0):
    torch.manual_seed(seed)
    model = Pebble(shape).eval()
    fill(model, seed)
    return model


@pytest.mark.parametrize(("shape", "length"), [(TINY, 128), (PEBBLE, 384)], ids=["tiny-128", "pebble-384"])
@torch.no_grad()
def test_logits_equal_transformers_beyond_the_indexer_budget(shape, length, monkeypatch):
    model = _model(shape)
    ids = torch.randint(0, shape.V, (1, length), generator=torch.Generator().manual_seed(1))
    ids[0, length // 3] = shape.eos  # cuts the n-gram context
    assert length > shape.budget + shape.ratio
    reading = model(ids, choose="indexer")
    ours = reading.hidden @ model.lm_head.weight.T
    judge = oracle(shape, model.state_dict())
    monkeypatch.setattr(torch.Tensor, "topk", stable_topk)
    theirs = judge(input_ids=ids).logits[0]
    # float32 sums of a few hundred terms in another order, over some tens of operations: the bound of the
    # model specification's own checks.
    assert theirs.std() > 0.05
    assert (ours - theirs).abs().max() < 1e-4
    dense = model(ids).hidden @ model.lm_head.weight.T
    assert (dense - theirs).abs().max() > 1e-3, "the selection must matter at this length"
