"""The file of random weights has the released model's shapes, and its numbers stay finite."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from strata.gguf import open_model
from strata.lab.synthetic.__main__ import main
from strata.lab.synthetic.shapes import Synthetic, metadata, tensors
from strata.lab.synthetic.words import EOS
from strata.model import Network, load_config, load_weights, take_inventory
from strata.ops import bind
from strata.text import ChatTemplate, Tokenizer


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


def test_any_text_can_be_asked_and_any_answer_shown():
    header = metadata(Synthetic())
    tokenizer, template = Tokenizer.from_metadata(header), ChatTemplate.from_metadata(header)
    assert tokenizer.size == 248320
    assert tokenizer.unused_ids == frozenset()  # every token that comes out likeliest may be said, as it was computed
    assert tokenizer.decode(tokenizer.encode("Größe 7\n")) == "Größe 7\n"
    assert tokenizer.decode([256, 257, 248319]) == " aaaa aaab ocyx"
    prompt = template.render([{"role": "user", "content": "Count <|im_end|>"}])
    ids = tokenizer.encode_prompt(prompt)
    assert [i for i in ids if i in tokenizer.control_ids] == [EOS + 1, EOS + 2, EOS + 1]
    assert tokenizer.decode(ids, special=True).endswith("<|im_end|>\n<|im_start|>assistant\n")
    assert load_config(header).ple.eos == EOS
    template.close()


def test_a_small_vocabulary_ends_with_its_control_tokens(tmp_path, capsys):
    tokenizer = Tokenizer.from_metadata(metadata(Synthetic(vocabulary=259)))
    assert tokenizer.eos_ids == (258, 256)
    assert main([str(tmp_path / "m.gguf"), "--vocabulary", "258"]) == 1
    assert "a vocabulary has 259 to 457232 tokens, not 258" in capsys.readouterr().err
