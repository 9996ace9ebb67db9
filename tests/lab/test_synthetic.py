"""The file of random weights has the released model's shapes, and its numbers stay finite."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from strata.gguf import open_model
from strata.lab.synthetic.__main__ import main
from strata.lab.synthetic.shapes import Synthetic, tensors
from strata.model import Network, load_config, load_weights, take_inventory
from strata.ops import bind


def test_the_whole_file_is_the_released_one_in_size():
    planned = list(tensors(Synthetic()))
    experts = sum(np.prod(t.shape) for t in planned if "_exps" in t.name)
    # What llama.cpp counts in the published 3-bit file's shapes with a table of 3.2 million rows.
    assert experts == 48 * 512 * 3 * 2560 * 640
    assert sum(np.prod(t.shape) for t in planned) / 1e9 == pytest.approx(126.26, abs=0.005)


@pytest.mark.slow
def test_a_short_one_is_read_and_computed(tmp_path, capsys):
    file = tmp_path / "m.gguf"
    small = ["--layers", "4", "--experts", "16", "--vocabulary", "1000", "--ngram-rows", "500"]
    assert main([str(file), *small]) == 0
    assert "GiB" in capsys.readouterr().out
    directory = open_model(file)
    config = replace(load_config(directory.metadata), context=512)
    assert take_inventory(directory, config).unused == ()
    for name, wanted in (("blk.0.attn_qkv.weight", 2560**-0.5), ("blk.0.ffn_up_exps.weight", 2560**-0.5)):
        assert directory.load(name).std() == pytest.approx(wanted, rel=0.03)
    network = Network(config, load_weights(directory, config), bind("cpu", config))
    state = network.new_state()
    done = network.window([(state, [5, 7, 9])])[0]
    logits = torch.from_numpy(network.predictions([done]))
    assert torch.isfinite(logits).all()
    assert 0.1 < logits.std() < 10


def test_a_type_that_does_not_exist(tmp_path, capsys):
    assert main([str(tmp_path / "m.gguf"), "--gate-up", "Q9"]) == 1
    assert "Q9" in capsys.readouterr().err
