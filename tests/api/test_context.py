"""How many tokens a conversation may hold: below, at and above the trained length, with and without scaling (O09)."""

from pathlib import Path

import pytest
import torch
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

import strata
from strata.cli.main import main
from strata.errors import RequestError
from strata.loading.stretch import stretched
from strata.model import load_config
from support import tiny as oracle
from support.network import prompt, stable_topk
from support.parity import LIMIT
from support.tiny_file import tiny_metadata, write_tiny

TRAINED = 256


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("short") / "tiny.gguf"
    return write_tiny(path, tiny_metadata() | {"qwen4exp.context_length": TRAINED})[0]


def of(name: str, **options: object):
    return stretched(load_config(oracle.metadata(oracle.SETTINGS[name])), **options)


def test_a_prompt_longer_than_trained_is_that_of_transformers_with_the_same_scaling(tiny) -> None:
    settings, ids = oracle.SETTINGS["other"], prompt("other", 400)
    rope = settings["rope_parameters"] | {
        "rope_type": "yarn",
        "factor": 2.0,
        "original_max_position_embeddings": TRAINED,
    }
    config = Qwen4ExpTextConfig(
        **settings | {"rope_parameters": rope, "max_position_embeddings": 2 * TRAINED}, attn_implementation="eager"
    )
    theirs = Qwen4ExpForCausalLM(config).eval()
    theirs.load_state_dict(oracle.oracle("other").state_dict())
    with strata.load(tiny, context=512, rope_scale=2) as model, torch.inference_mode(), stable_topk():
        assert (model.ready.context, model.ready.rope_scale) == (512, 2.0)
        assert (model.config.context, model.config.rope) == (512, model.network.config.rope)
        ours = model.network.logits(model.network.read(model.network.new_state(), ids))
        expected, unscaled = (m(torch.tensor([ids])).logits[0] for m in (theirs, oracle.oracle("other")))
    assert float((ours - expected).abs().max()) < LIMIT
    assert float((unscaled - expected).abs().max()) > 100 * LIMIT, "the scaling shows"


def test_served_with_scaling_refused_without(tiny) -> None:
    """O09, whole: 400 tokens against a trained length of 256, with the engine in a process of its own."""
    text = "a" * 400
    with strata.load(tiny, context=512, rope_scale=2, process=True) as model:
        assert model.ready.context == 512
        count = len(model.tokenize(text))
        assert TRAINED < count < 512
        assert model.complete(text, max_tokens=4).usage.prompt_tokens == count
    with strata.load(tiny) as model, pytest.raises(RequestError, match=f"{count} tokens, but the context holds 256"):
        model.complete(text, max_tokens=4)
    expected = "512 tokens is more than the 256 tokens the model was trained for.*--rope-scaling yarn --rope-scale 2 "
    for process in (False, True):
        with pytest.raises(RequestError, match=expected):
            strata.load(tiny, context=512, process=process)
    with pytest.raises(RequestError, match="the rope scale must be a number from 1"):
        strata.load(tiny, rope_scale="2", process=True)


def test_conversations_of_another_scale_are_not_gone_on_with(tiny, tmp_path) -> None:
    text = "a b c d e f g h " * 13
    found = []
    for options in ({"rope_scale": 2}, {"rope_scale": 2}, {"rope_scale": 3}, {}, {"rope_scale": 2, "context": 500}):
        with strata.load(tiny, folder=str(tmp_path), rows=64, step=64, **options) as model:
            found.append(model.complete(text, max_tokens=2).usage.cached_tokens > 100)
    assert found == [False, True, False, False, True]


def test_the_limit_is_the_scale_times_the_trained_length() -> None:
    plain = of("base")
    assert plain == of("base", scale=1) == of("base", context=1024)
    for scale, most in ((2, 2048), (1.5, 1536), (1.001, 1025)):
        c = of("base", scale=scale)
        assert (c.context, c.rope.scale, c.rope.original_context) == (most, scale, 1024)
        assert of("base", scale=scale, context=most) == c == stretched(c, c.context, c.rope.scale)
        with pytest.raises(RequestError, match=f"{most + 1} tokens is more than the {most} that a rope scale of"):
            of("base", scale=scale, context=most + 1)
    assert of("base", context=2).context == 2
    assert of("base", context=300, scale=4).context == 300


@pytest.mark.parametrize("context", [1025, 1030, 1500, 2048, 65536])
def test_the_scale_that_an_error_names_is_enough(context) -> None:
    with pytest.raises(RequestError) as caught:
        of("base", context=context)
    scale = float(str(caught.value).split("rope_scale=")[1].rstrip(")"))
    assert of("base", context=context, scale=scale).context == context
    with pytest.raises(RequestError, match="more than"):
        of("base", context=context, scale=max(1, scale - 0.02))


def test_a_context_out_of_reach_is_not_advised() -> None:
    with pytest.raises(RequestError, match=r"set a context of at most 1024$"):
        of("base", context=65 * 1024)


def test_a_scaled_file_keeps_its_own_unless_told_otherwise() -> None:
    own = of("yarn")
    assert (own.context, own.rope.scale, own.rope.original_context) == (1024, 4.0, 64)
    assert own == of("yarn", scale=4)
    other = of("yarn", scale=2)
    assert (other.context, other.rope.scale, other.rope.original_context) == (128, 2.0, 64)
    off = of("yarn", scale=1)
    assert (off.context, off.rope) == (64, of("base").rope)


@pytest.mark.parametrize(
    "options",
    [{"context": 1}, {"context": True}, {"context": 3.0}, {"scale": 0.5}, {"scale": 65}, {"scale": float("nan")}],
)
def test_values_that_make_no_sense_are_refused(options) -> None:
    with pytest.raises(RequestError, match="must be"):
        of("base", **options)


def test_the_command_line(tiny, capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/nowhere")
    inspect = ["inspect", str(tiny)]
    assert main([*inspect, "--context", "512", "--rope-scaling", "yarn", "--rope-scale", "2"]) == 0
    assert "512 tokens, stretched 2 times (YaRN)" in capsys.readouterr().out
    config = tmp_path / "c.toml"
    config.write_text('rope_scaling = "yarn"\nrope_scale = 3\n')
    assert main([*inspect, "--config", str(config)]) == 0
    assert "768 tokens, stretched 3 times" in capsys.readouterr().out
    assert main([*inspect, "--config", str(config), "--rope-scaling", "none"]) == 0
    assert "256 tokens\n" in capsys.readouterr().out
    for flags, code, message in (
        (["--context", "512"], 1, "more than the 256 tokens"),
        (["--rope-scaling", "yarn"], 2, "nothing says by how much"),
        (["--rope-scaling", "linear"], 2, "must be none or yarn"),
        (["--rope-scale", "0.5"], 2, "a number from 1 to 64"),
        (["--context", "1"], 2, "at least 2"),
    ):
        assert main([*inspect, *flags]) == code
        assert message in capsys.readouterr().err
    assert main(["run", "--model", str(tiny), "--context", "512", "x"]) == 1
    assert "more than the 256 tokens" in capsys.readouterr().err
