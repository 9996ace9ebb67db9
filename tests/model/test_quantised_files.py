"""From quantised files to logits: random blocks of every type, against the oracle holding the same numbers."""

import pytest
import torch

from strata.gguf import open_model
from strata.model import Network, load_config, load_weights, take_inventory
from strata.ops import bind
from support import parity, quantised
from support.network import prompt, stable_topk

CASES = {"base": range(4), "yarn": range(1)}


def ours(path, ids, *, exact=True):
    directory = open_model(path)
    config = load_config(directory.metadata)
    assert take_inventory(directory, config, exact=exact).unused == ()
    net = Network(config, load_weights(directory, config, exact=exact), bind("cpu", config))
    with torch.inference_mode():
        return net.logits(net.read(net.new_state(), ids))


@pytest.mark.parametrize(("name", "seed"), [(n, s) for n, seeds in CASES.items() for s in seeds])
def test_logits_of_a_quantised_file(tmp_path, name, seed):
    path, held, used = quantised.write(tmp_path, name, seed, split=seed % 2 == 1)
    assert len(used) > 12
    ids = prompt(name, 60)
    with stable_topk():
        expected = quantised.logits(quantised.oracle_holding(name, held), ids)
    assert 0.2 < expected.std() < 2
    assert parity.difference(ours(path, ids), expected) < parity.LIMIT


def test_the_cases_use_every_type():
    used = {kind for n, seeds in CASES.items() for s in seeds for _, _, kind in quantised.mix(n, s)}
    assert used == {*quantised.WIDE, *quantised.NARROW, *quantised.PAIRS, None}


def test_a_split_set_gives_the_bytes_of_one_file(tmp_path):
    one, _, _ = quantised.write(tmp_path, "base", 2, split=False)
    (tmp_path / "set").mkdir()
    many, _, _ = quantised.write(tmp_path / "set", "base", 2, split=True)
    assert len(open_model(many).files) == 4
    ids = prompt("base", 30)
    assert torch.equal(ours(one, ids), ours(many, ids))
