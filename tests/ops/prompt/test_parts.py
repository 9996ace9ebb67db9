"""A long pass goes through n-grams and attention in parts, which no byte shows."""

from dataclasses import replace

import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("transformers")  # the tiny model is its oracle

from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.ops.prompt import ops as prompt
from strata.ops.prompt.batch import PromptBatch
from support.launch import NATIVE
from support.stored import write_stored

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(scope="module")
def network(tmp_path_factory) -> Network:
    """Two layers of the tiny model: n-gram and GDN, QSA."""
    from strata.ops.gpu.ops import GpuOps
    from strata.ops.gpu.pool import Pool
    from strata.ops.gpu.upload import Upload

    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf", name="yarn"))
    config = replace(load_config(directory.metadata), mtp=False)
    stored = load_weights(directory, config)
    config = replace(config, mixers=(config.mixers[1], config.mixers[3]))
    stored = replace(stored, layers=(stored.layers[1], stored.layers[3]))
    pool = Pool(config, DEVICE, slots=4, cells=1024, kv=torch.float32)
    return Network(config, Upload(DEVICE).all(stored), GpuOps(config, pool, DEVICE))


@pytest.mark.slow
def test_a_long_pass_in_parts_has_the_bytes_of_one(network, monkeypatch) -> None:
    """Behind cells that are all zero; the z of a long pass comes when it is needed."""
    ids, pool = [5, 17, 40, 8, 61, 33], network.ops._pool
    ours, whole = network.new_state(), network.new_state()
    for state in (ours, whole):
        pool.reserve(state, 63)
        state.length = state.next_position = 63
        pool.raw[:, state.slot] = 0
        for tables in (pool.keys, pool.values, pool.blocks):
            for cells in tables:
                cells[state.pages] = 0
    expected = network.read(whole, ids)
    monkeypatch.setattr(network.ops._prompt, "part", 4)
    monkeypatch.setattr(prompt, "RECORDED", 3)
    asked: list[list[int]] = []
    parts = PromptBatch.parts

    def seen(batch: PromptBatch, rows: int):
        found = parts(batch, rows)
        asked.append([one.batch.room for one in found])
        return found

    monkeypatch.setattr(PromptBatch, "parts", seen)
    assert torch.equal(network.read(ours, ids), expected)
    assert asked == [[1, 4, 1], [1, 4, 1]], "n-grams, and attention"
    for (name, a), (_, b) in zip(ours.tensors(), whole.tensors(), strict=True):
        assert torch.equal(a, b), name
