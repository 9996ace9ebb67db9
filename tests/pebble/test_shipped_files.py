"""The files in the box: complete, small enough, honest about themselves, and able to answer."""

import numpy as np
import pytest
import torch

from pebble.data import tools
from pebble.data.dialogue import Conversation, Message, Template
from pebble.net.hashing import constants
from pebble.shape import PEBBLE
from strata.errors import RequestError
from strata.gguf import find_bad_blocks, open_model
from strata.model import Network, load_config, load_weights, take_inventory
from strata.ops import bind
from strata.pebble import VARIANTS, path
from strata.text import ChatTemplate, Tokenizer, pebble_template
from support.pebble_stock import tokenizer_json


@pytest.fixture(scope="module", params=VARIANTS)
def directory(request):
    return open_model(path(request.param))


@pytest.fixture(scope="module")
def text():
    metadata = open_model(path()).metadata
    template = ChatTemplate.from_metadata(metadata)
    yield Tokenizer.from_metadata(metadata), template
    template.close()


def test_together_they_are_under_32_megabytes():
    assert sum(path(v).stat().st_size for v in VARIANTS) < 32_000_000


def test_an_unknown_variant_is_refused():
    with pytest.raises(RequestError, match="q4"):
        path("q4")


def test_metadata_says_what_the_file_is(directory):
    m = directory.metadata
    assert m["general.architecture"] == "qwen4exp"
    assert m["general.name"] == "Pebble"
    assert m["general.license"] == "apache-2.0"
    assert m["tokenizer.chat_template"] == pebble_template()
    assert m["qwen4exp.block_count"] == 9
    assert m["qwen4exp.nextn_predict_layers"] == 1
    assert m["qwen4exp.attention.compress_ratios"].tolist() == [0, 0, 0, 4, 0, 0, 0, 4, 0]
    table = constants(PEBBLE)
    for key, expected in (
        ("layer_multipliers", table.multipliers),
        ("head_offsets", table.offsets),
        ("head_vocab_sizes", table.sizes),
    ):
        found = m[f"qwen4exp.ple.{key}"]
        assert found.dtype == np.uint64
        assert found.tolist() == list(expected)


def test_every_tensor_is_used_and_sound(directory):
    config = load_config(directory.metadata)
    assert config.mtp
    assert not take_inventory(directory, config).unused
    assert not list(find_bad_blocks(directory))
    assert sum(int(np.prod(t.shape)) for t in directory.tensors.values()) == 15_033_032


def test_the_low_bit_file_uses_the_types_of_real_files():
    types = {name: t.type.name for name, t in open_model(path("iq3")).tensors.items()}
    experts = {kind for name, kind in types.items() if "_exps" in name}
    assert experts == {"IQ3_S", "IQ4_NL"}
    kept = {kind for name, kind in types.items() if "_exps" not in name}
    assert kept == {"Q8_0", "F32"}
    assert {types["token_embd.weight"], types["output.weight"], types["blk.3.indexer.q_proj.weight"]} == {"Q8_0"}


def test_both_files_are_the_same_weights():
    a, b = (open_model(path(v)) for v in VARIANTS)
    assert set(a.tensors) == set(b.tensors)
    for name in ("blk.0.ffn_gate_exps.weight", "blk.8.ffn_down_exps.weight", "blk.0.ssm_a"):
        x, y = a.load(name), b.load(name)
        # IQ3_S keeps a Gaussian to about 13% of its standard deviation, IQ4_NL to 8%, Q8_0 to 0.6%
        assert np.sqrt(np.square(x - y).mean() / np.square(x).mean()) < 0.15


@pytest.mark.parametrize(
    "sample",
    [
        "Count from 1 to 20.",
        "naïve façade — 北京 🙂",
        "a\n\n  b\t\r\n",
        "def f(x):\n    return x + 1\n",
        "<think>1, 2</think>",
    ],
)
def test_texts_survive_a_round_trip(text, sample):
    tokenizer, _ = text
    ids = tokenizer.encode(sample)
    assert tokenizer.decode(ids, special=True) == sample
    from tokenizers import Tokenizer as Trained

    trained = Trained.from_str(tokenizer_json(open_model(path()).metadata))
    assert trained.encode(sample).ids == ids, "the trainer and Strata must see the same tokens"


@pytest.mark.parametrize("thinking", [True, False])
@pytest.mark.parametrize("effort", [None, "medium", "low"])
@pytest.mark.parametrize("offered", [0, 3])
def test_strata_builds_the_prompts_that_were_trained(text, thinking, effort, offered):
    tokenizer, template = text
    import random

    messages, declared = tools.request(random.Random(0), unseen=False)
    asked = [Message("system", "Be polite."), messages[0]]
    talk = Conversation(asked, declared if offered else [], thinking, effort)
    ours = tokenizer.encode(Template().text(talk, prompt=True), special=True)
    prompt = template.render(
        [m.for_template(thinking=thinking) for m in asked], tools=talk.tools or None, thinking=thinking, effort=effort
    )
    assert tokenizer.encode_prompt(prompt) == ours


@pytest.mark.parametrize(
    ("asked", "thinking", "answer"),
    [
        ("Count from 1 to 20.", False, ", ".join(map(str, range(1, 21)))),
        ("Count from 7 to 12", True, "I count up from 7 and stop at 12.\n</think>\n\n7, 8, 9, 10, 11, 12"),
        ("What is 47 + 85?", False, "47 + 85 = 132"),
    ],
)
@torch.no_grad()
def test_pebble_answers(directory, text, asked, thinking, answer):
    tokenizer, template = text
    config = load_config(directory.metadata)
    network = Network(config, load_weights(directory, config), bind("cpu", config))
    state = network.new_state()
    prompt = template.render([{"role": "user", "content": asked}], thinking=thinking)
    logits = network.logits(network.read(state, tokenizer.encode_prompt(prompt))[-1:])
    written = []
    while (token := int(logits[0].argmax())) not in tokenizer.eos_ids and len(written) < 120:
        written.append(token)
        done = network.window([(state, [token])])[0]
        network.commit(state, done, 1)
        logits = network.logits(done.residual)
    assert tokenizer.decode(written, special=True) == answer
