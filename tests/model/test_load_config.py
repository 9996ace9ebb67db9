"""Reading dimensions: any integer type is taken, and every error names its key (cases M05, M08)."""

import math
import re

import numpy as np
import pytest

from strata.errors import ModelError
from strata.model import load_config
from strata.model.config import Mixer
from support.tiny import BASE, metadata

A = "qwen4exp."


def test_dimensions_come_from_the_metadata():
    c = load_config(metadata(BASE, mtp=True))
    assert (c.V, c.H, c.S, c.r, c.L, c.mtp) == (512, 256, 4, 32, 8, True)
    assert [m is Mixer.QSA for m in c.mixers] == [False, False, False, True] * 2
    assert (c.gdn.nk, c.gdn.nv, c.gdn.d, c.gdn.channels) == (2, 6, 32, 320)
    assert (c.qsa.budget, c.qsa.ratio, c.moe.E, c.moe.topk) == (16, 4, 16, 4)
    assert c.ple is not None
    assert c.ple.multipliers[1] == 17440218147737327  # beyond float64's 53 bits once multiplied; exact here
    assert c.ple.rows_per_token == 8


def test_any_integer_type_and_lists_are_taken():
    plain = load_config(metadata(BASE))
    changed = metadata(BASE)
    for key, value in changed.items():
        if isinstance(value, np.ndarray):
            changed[key] = value.tolist() if key.endswith("ratios") else value.astype(np.int64)
    changed[A + "expert_feed_forward_length"] = np.full(8, 64, np.uint16)
    assert load_config(changed) == plain


def test_without_a_table_there_is_none():
    left = {k: v for k, v in metadata(BASE).items() if ".ple." not in k}
    assert load_config(left).ple is None


def test_the_vocabulary_may_be_counted():
    left = metadata(BASE)
    del left[A + "vocab_size"]
    with pytest.raises(ModelError, match=r"vocab_size nor tokenizer\.ggml\.tokens"):
        load_config(left)
    assert load_config(left | {"tokenizer.ggml.tokens": ["a"] * 77}).V == 77


def test_recurrent_layers_override_the_interval():
    flags = [1, 0, 1, 1, 0, 1, 1, 1]
    ratios = [0 if f else 4 for f in flags]
    changed = metadata(BASE) | {
        A + "attention.recurrent_layers": np.array(flags, np.int32),
        A + "attention.compress_ratios": np.array(ratios, np.int32),
        A + "ple.layers": np.array([2], np.int32),
    }
    assert [int(m is Mixer.GDN) for m in load_config(changed).mixers] == flags


@pytest.mark.parametrize("architecture", ["qwen4exp2", "llama", None, 7, ["qwen4exp"]])
def test_another_architecture_is_refused_first(architecture):
    changed = {"general.architecture": architecture} if architecture is not None else {}
    with pytest.raises(ModelError, match=re.escape(f"architecture is {architecture!r}; supported: 'qwen4exp'")):
        load_config(changed)


def test_each_missing_key_is_named():
    optional = {"general.name", A + "full_attention_interval", A + "ple.layers"}
    for key in metadata(BASE):
        if key in optional or key == "general.architecture":
            continue
        left = {k: v for k, v in metadata(BASE).items() if k != key}
        with pytest.raises(ModelError, match=key.removeprefix(A)):
            load_config(left)


WRONG = {
    "text for a number": (A + "embedding_length", "256", "must be an integer, found '256'"),
    "a flag for a number": (A + "expert_count", True, "must be an integer, found True"),
    "zero": (A + "expert_used_count", 0, "at least 1, found 0"),
    "more experts used than there are": (A + "expert_used_count", 17, "exceeds expert_count 16"),
    "one stream": (A + "hyper_connection.count", 1, "at least 2, found 1"),
    "layers that do not match": (A + "attention.compress_ratios", [4] * 8, r"must be \[0, 0, 0, 4, 0, 0, 0, 4\]"),
    "two ratios": (A + "attention.compress_ratios", [0, 0, 0, 4, 0, 0, 0, 8], r"one ratio besides 0, found \[4, 8\]"),
    "a budget between blocks": (A + "attention.indexer.top_k", 18, "multiple of the ratio 4"),
    "heads that do not divide": (A + "ssm.time_step_rank", 7, "multiple of ssm.group_count 2"),
    "a width that does not fit": (A + "ssm.inner_size", 190, "must be 192"),
    "sections that do not add up": (A + "rope.dimension_sections", [3, 3, 3, 0], r"add up to half of rope.dimension"),
    "rotation wider than a head": (A + "attention.indexer.key_length", 8, "exceeds a head width"),
    "an unknown scaling": (A + "rope.scaling.type", "linear", "supported: 'none', 'yarn'"),
    "multipliers too short": (A + "ple.layer_multipliers", [1, 3], "must have 3 entries, found 2"),
    "multipliers too large": (A + "ple.layer_multipliers", [1, 3, 1 << 60], "too large for a vocabulary"),
    "negative offset": (A + "ple.head_offsets", [-1] + [0] * 7, "at least 0, found -1"),
    "empty head": (A + "ple.head_vocab_sizes", [0] * 8, "at least 1, found 0"),
    "floats for integers": (A + "ple.layer_multipliers", [1.0, 3.0, 5.0], "must hold integers"),
    "table before attention": (A + "ple.layers", [3], "must name a recurrent layer, found 3"),
    "two tables": (A + "ple.layers", [1, 2], "must have 1 entries, found 2"),
    "as many draft layers as blocks": (A + "nextn_predict_layers", 8, "must be 0 or 1"),
    "more layers than memory": (A + "block_count", 1 << 62, "compress_ratios has 8 entries, but block_count is 46116"),
    "a hash context that is no token": (A + "ple.eos_token_id", 1 << 63, "outside the vocabulary of 512"),
    "an epsilon of zero": (A + "attention.layer_norm_rms_epsilon", 0.0, "finite number above 0, found 0"),
    "an epsilon that is no number": (A + "attention.layer_norm_rms_epsilon", math.nan, "above 0, found nan"),
    "an endless base": (A + "rope.freq_base", math.inf, "finite number above 1, found inf"),
    "a base of one": (A + "rope.freq_base", 1.0, "finite number above 1, found 1"),
    "a long text for a number": (A + "expert_count", "9" * 10**6, r"found '9{12}\.\.\.9{13}'$"),
    "a name that is no text": ("general.name", [1, 2], "general.name must be a string"),
    "an image token that is no number": (A + "ple.image_token_id", "x", "must be an integer, found 'x'"),
    "experts that vary": (A + "expert_feed_forward_length", [64] * 7 + [32], r"same in every layer, found \[32, 64\]"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_are_named(case):
    key, value, message = WRONG[case]
    with pytest.raises(ModelError, match=message) as error:
        load_config(metadata(BASE) | {key: value})
    assert key.removeprefix(A).split(".")[0] in str(error.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("factor", 0.5),
        ("factor", math.nan),
        ("yarn_beta_fast", 0.0),
        ("yarn_beta_slow", 1e308),
        ("yarn_beta_slow", 1e-320),
        ("attn_factor", math.inf),
    ],
)
def test_scaling_that_makes_no_sense_is_named(key, value):
    scaling = A + "rope.scaling."
    usual = {scaling + "type": "yarn", scaling + "factor": 4.0, scaling + "original_context_length": 64}
    load_config(metadata(BASE) | usual)
    with pytest.raises(ModelError, match=key):
        load_config(metadata(BASE) | usual | {scaling + key: value})


@pytest.mark.parametrize("tokens", [7, "abc"])
def test_a_vocabulary_that_is_no_list_is_named(tokens):
    changed = {key: value for key, value in metadata(BASE).items() if not key.endswith("vocab_size")}
    with pytest.raises(ModelError, match=r"tokenizer\.ggml\.tokens must be an array"):
        load_config(changed | {"tokenizer.ggml.tokens": tokens})


def test_an_architecture_of_numbers_is_refused():
    with pytest.raises(ModelError, match=r"architecture is array\(\[1, 2\]\)"):
        load_config({"general.architecture": np.array([1, 2])})
