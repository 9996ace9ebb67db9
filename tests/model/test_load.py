"""Loading: every tensor is asked for once, by a name and shape the error repeats; writers' variants are understood."""

import dataclasses
import functools

import numpy as np
import pytest
import torch

from strata.errors import ModelError
from strata.model import load_config, load_weights, take_inventory, with_draft_head
from strata.model.network import Network
from strata.ops import bind
from support import tiny
from support.mtp_oracle import mtp_oracle
from support.network import network, prompt


@functools.cache
def whole():
    """All arrays of the tiny model with a draft head, and its config."""
    arrays = tiny.tensors("base") | tiny.mtp_tensors("base", mtp_oracle("base"))
    return arrays, load_config(tiny.metadata(tiny.BASE, mtp=True))


def inventory(arrays):
    return take_inventory(tiny.MemoryDirectory(arrays), whole()[1])


def logits(arrays, config, ids):
    net = Network(config, load_weights(tiny.MemoryDirectory(arrays), config), bind("cpu", config))
    with torch.inference_mode():
        return net.logits(net.read(net.new_state(), ids))


def test_a_whole_model_leaves_nothing_over_and_nothing_unset():
    arrays, config = whole()
    found = inventory(arrays)
    assert found.unused == ()
    in_file = ("token_embd.weight", "per_layer_token_embd.weight")
    assert found.bytes == 4 * sum(a.size for name, a in arrays.items() if name not in in_file)
    # case M10: no weight keeps the value it had before its tensor was read
    nans = {name: np.full_like(a, np.nan) for name, a in arrays.items()}
    assert not torch.isfinite(logits(nans, config, [5, 6])).any()
    assert torch.isfinite(logits(arrays, config, [5, 6])).all()


def test_each_missing_tensor_is_named():
    arrays, _ = whole()
    for name in arrays:
        if name == "output.weight":
            continue  # then the embedding is reused; below
        left = {n: a for n, a in arrays.items() if n != name}
        with pytest.raises(ModelError) as error:
            inventory(left)
        assert f"tensor {name} is missing; expected shape" in str(error.value)
        if name != "per_layer_token_embd.weight":
            assert str(list(arrays[name].shape)) in str(error.value)
        assert "download" not in str(error.value)


def test_dimensions_beyond_any_memory_are_wrong_shapes():
    arrays, config = whole()
    for letters in ({"H": 1 << 63}, {"V": 1 << 64}, {"H": 1 << 31, "S": 1 << 31}):
        with pytest.raises(ModelError, match=r"tensor output\.weight has shape|tensor blk\.0"):
            take_inventory(tiny.MemoryDirectory(arrays), dataclasses.replace(config, **letters))


def test_each_wrong_shape_is_named_with_both_shapes():
    arrays, _ = whole()
    for name, array in arrays.items():
        if name == "per_layer_token_embd.weight":
            continue  # its height is free
        wrong = np.zeros((*array.shape[:-1], array.shape[-1] + 1), np.float32)
        with pytest.raises(ModelError) as error:
            inventory(arrays | {name: wrong})
        assert f"tensor {name} has shape {list(wrong.shape)}, expected {list(array.shape)}" in str(error.value)


def test_all_problems_are_told_at_once():
    arrays, _ = whole()
    left = {n: a for n, a in arrays.items() if "ffn_gate_inp.weight" not in n}
    with pytest.raises(ModelError) as error:
        inventory(left)
    assert str(error.value).count("is missing") == 8
    assert "and 1 more" in str(error.value)


def test_unused_tensors_are_listed():
    arrays, _ = whole()
    extra = {"blk.0.something.weight": np.zeros(3, np.float32), "blk.0.ffn_up_exps.input_scale": np.ones(1, np.float32)}
    assert inventory(arrays | extra).unused == ("blk.0.something.weight",)


def test_the_embedding_stands_in_for_a_missing_output_matrix():
    arrays, config = whole()
    left = {n: a for n, a in arrays.items() if n != "output.weight"}
    tied = arrays | {"output.weight": arrays["token_embd.weight"]}
    assert torch.equal(logits(left, config, [3, 4, 5]), logits(tied, config, [3, 4, 5]))


def test_gate_and_up_in_one_tensor():
    arrays, config = whole()
    merged = dict(arrays)
    for i in (0, 3, 8):
        gate, up = (merged.pop(f"blk.{i}.ffn_{part}_exps.weight") for part in ("gate", "up"))
        merged[f"blk.{i}.ffn_gate_up_exps.weight"] = np.concatenate((gate, up), axis=1)
    assert inventory(merged).unused == ()
    ids = prompt("base", 20)
    assert torch.equal(logits(merged, config, ids), logits(arrays, config, ids))


def test_scale_tensors_multiply_their_matrix():
    """NVFP4 files: one number per expert, or one for a matrix."""
    arrays, config = whole()
    scaled, rng = dict(arrays), np.random.default_rng(0)
    for name, count in (("blk.2.ffn_down_exps", 16), ("blk.3.attn_q", 1)):
        scale = 2.0 ** rng.integers(-2, 3, count).astype(np.float32)
        array = arrays[name + ".weight"]
        scaled[name + ".weight"] = array / scale.reshape(-1, *([1] * (array.ndim - 1)))
        scaled[name + ".scale"] = scale
    ids = prompt("base", 20)
    assert torch.equal(logits(scaled, config, ids), logits(arrays, config, ids))
    with pytest.raises(ModelError, match=r"ffn_down_exps.scale has shape \[3\], expected \[16\]"):
        inventory(scaled | {"blk.2.ffn_down_exps.scale": np.ones(3, np.float32)})


def test_a_hash_past_the_end_of_the_table_is_refused():
    """Case M08."""
    arrays, _ = whole()
    short = arrays | {"per_layer_token_embd.weight": arrays["per_layer_token_embd.weight"][:8000]}
    with pytest.raises(ModelError, match=r"ple\.head_offsets.*head 7 ends at row 8214.*has 8000 rows"):
        inventory(short)


RENAMED = {
    "split": {"fc_embd": "nextn.fc_embd.weight", "fc_hidden": "nextn.fc_hidden.weight"},
    "fr-spec": {
        "fc_embd": "nextn.fc_embd.weight",
        "fc_hidden": "nextn.fc_hidden.weight",
        "hc_head_norm": "nextn.hc_norm.weight",
        "hc_head_down": "nextn.hc_down.weight",
        "hc_head_up": "nextn.hc_up.weight",
    },
    "ik": {
        "fc_embd": "mtp.fc_embd.weight",
        "fc_hidden": "mtp.fc_hidden.weight",
        "enorm": "mtp.enorm.weight",
        "hnorm": "mtp.hnorm.weight",
        "hc_head_norm": "mtp.hc_norm.weight",
        "hc_head_down": "mtp.hc_down.weight",
        "hc_head_up": "mtp.hc_up.weight",
    },
    "early": {
        "hc_head_norm": "nextn.shared_head_norm.weight",
        "hc_head_down": "/output_hc_down.weight",
        "hc_head_up": "/output_hc_up.weight",
    },
}


def drafts(net, ids):
    with torch.inference_mode():
        state = net.new_state()
        net.read(state, ids)
        return torch.stack(net.draft(state, 7, 2))


@pytest.mark.parametrize("own_matrices", [False, True], ids=["borrowed", "own"])
@pytest.mark.parametrize("variant", RENAMED)
def test_draft_head_in_its_own_file_under_other_names(variant, own_matrices):
    head = tiny.mtp_tensors("base", mtp_oracle("base"))
    both = head.pop("blk.8.nextn.eh_proj.weight")
    head |= {"blk.8.nextn.fc_embd.weight": both[:, :256], "blk.8.nextn.fc_hidden.weight": both[:, 256:]}
    for ours, theirs in RENAMED[variant].items():
        target = theirs[1:] if theirs.startswith("/") else "blk.8." + theirs
        head[target] = head.pop(f"blk.8.nextn.{ours}.weight")
    if own_matrices:
        trunk = tiny.tensors("base")
        head["blk.8.nextn.embed_tokens.weight"] = trunk["token_embd.weight"]
        head["blk.8.nextn.shared_head_head.weight"] = trunk["output.weight"]
    plain = network("base")
    weights, config = with_draft_head(plain.weights, plain.config, tiny.MemoryDirectory(head), exact=True)
    got = drafts(Network(config, weights, plain.ops, drafts=True), prompt("base", 30))
    assert torch.equal(got, drafts(network("base", drafts=True), prompt("base", 30)))


def test_a_draft_head_of_another_model_is_refused():
    head = tiny.mtp_tensors("base", mtp_oracle("base"))
    other = network("other")
    with pytest.raises(ModelError, match=r"draft head: tensor blk\.4\."):
        with_draft_head(other.weights, other.config, tiny.MemoryDirectory(head))
