"""Export: a trained model and the file made from it are the same function, draft head included."""

import pytest
import torch

from pebble.net.trunk import Pebble
from pebble.shape import TINY
from pebble.shelf.metadata import metadata
from pebble.shelf.tensors import tensors, tiled
from strata.formats import by_name
from strata.gguf import TensorData, open_model, write_model
from strata.model import Network, load_config, load_weights, take_inventory
from strata.ops import bind
from support.pebble_oracle import fill
from support.pebble_stock import small_stock

LENGTH = 128


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    folder = tmp_path_factory.mktemp("export")
    stock = small_stock(folder / "stock")
    model = Pebble(TINY).eval()
    fill(model, 4)
    template = (stock / "template.jinja").read_text("utf-8")
    meta = metadata(TINY, stock / "tokenizer.json", template, 0)
    made = [TensorData.quantised(n, v.astype("float32"), by_name("F32")) for n, v in tensors(model.state_dict(), TINY)]
    write_model(folder / "tiny.gguf", meta, made)
    directory = open_model(folder / "tiny.gguf")
    config = load_config(directory.metadata)
    assert not take_inventory(directory, config).unused
    return model, Network(config, load_weights(directory, config, exact=True), bind("cpu", config), drafts=True)


@torch.no_grad()
def test_the_file_computes_what_was_trained(both):
    model, network = both
    ids = torch.randint(0, TINY.V, (1, LENGTH), generator=torch.Generator().manual_seed(1))
    ours = model(ids, choose="indexer").hidden @ model.lm_head.weight.T
    theirs = network.logits(network.read(network.new_state(), ids[0].tolist()))
    assert ours.std() > 0.05
    # two float32 forward passes that sum in different orders
    assert (ours - theirs).abs().max() < 1e-4


@torch.no_grad()
def test_the_file_drafts_what_was_trained(both):
    model, network = both
    ids = torch.randint(0, TINY.V, (1, LENGTH), generator=torch.Generator().manual_seed(2))
    committed = 90
    reading = model(ids, choose="indexer")
    state = network.new_state()
    network.read(state, ids[0, :committed].tolist())
    theirs = network.draft(state, int(ids[0, committed]), 3)
    # The engine drafts from its own proposals: put them where the trained chain reads them.
    for step, logits in enumerate(theirs[:2], 1):
        ids[0, committed + step] = int(logits.argmax())
    embedded = model.embed(ids[0], torch.float32)
    drafts, _ = model.mtp.chain(reading.residual, embedded, 1, 3)
    for draft, logits in zip(drafts, theirs, strict=True):
        ours = draft.hidden[committed - 1] @ model.lm_head.weight.T
        assert (ours - logits).abs().max() < 1e-4


def test_heads_are_tiled_by_the_permutation_of_the_specification():
    import numpy as np

    from pebble.shape import PEBBLE

    heads = np.arange(6, dtype=np.float32)
    assert tiled(PEBBLE, heads, 1).tolist() == [0, 3, 1, 4, 2, 5]


def test_a_tensor_without_a_place_is_an_error(both):
    state = dict(both[0].state_dict()) | {"model.surprise.weight": torch.zeros(1)}
    with pytest.raises(ValueError, match="surprise"):
        list(tensors(state, TINY))
