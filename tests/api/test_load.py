import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

import strata
from strata import pebble
from strata.engine import NotFiniteError, Sampling
from strata.errors import GgufError, ModelError, RequestError, StrataError, TextError
from strata.experts.pool import choose, read
from strata.loading import bundled, ram
from strata.loading.bundled import BUNDLED
from strata.memory.budget import DoesNotFitError
from strata.ops import workers
from support.tiny_file import tiny_metadata, tiny_tensors, write_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("tiny") / "tiny.gguf")[0]


def test_importing_strata_is_light_and_complete() -> None:
    code = (
        "import sys, strata; assert not {'torch', 'numpy', 'tokenizers'} & set(sys.modules)\n"
        "assert set(strata.__all__) <= set(dir(strata)); assert strata.__version__\n"
        "import strata.api; assert 'torch' not in sys.modules\n"
        "assert strata.load is strata.api.load; [getattr(strata, name) for name in strata.__all__]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": os.pathsep.join(sys.path)})
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        strata.laod  # noqa: B018


def test_a_model_answers_the_same_again(tiny) -> None:
    seen: list[tuple[int, int]] = []
    model = strata.load(tiny, on_load=lambda *now: seen.append(now))
    assert (model.name, model.config.L, model.unused, model.sampling) == ("tiny", 4, (), Sampling())
    assert (
        seen[-1][0]
        == seen[-1][1]
        == 4 * sum(value.size for name, value in tiny_tensors().items() if "token_embd" not in name)
    )
    for options in ({}, {"temperature": 1.5, "seed": 4}):
        first = model.complete("The quick", max_tokens=24, **options)
        assert first == strata.load(str(tiny)).complete("The quick", max_tokens=24, **options)
        assert first.usage.completion_tokens == 24 or first.finish_reason == "stop"
    assert model.complete("The quick", max_tokens=24, temperature=1.5, seed=5) != first
    assert model.chat("Hi", max_tokens=3).usage.prompt_tokens > 3


def test_unused_tensors_are_named(tmp_path) -> None:  # case M06
    path, *_ = write_tiny(tmp_path / "m.gguf", tensors=tiny_tensors() | {"blk.0.extra.weight": np.zeros((1, 4))})
    assert strata.load(path).unused == ("blk.0.extra.weight",)


@pytest.mark.parametrize("where", ["мод ель/漢字 & 'x'/tiny.gguf", "link", "l" * 200 + "/" + "o" * 200 + "/tiny.gguf"])
def test_odd_paths_work(tiny, tmp_path, where) -> None:  # case M16
    path = tmp_path / where
    path.parent.mkdir(parents=True, exist_ok=True)
    if where == "link":
        path.symlink_to(tiny)
    else:
        path.hardlink_to(tiny)
    mode = tiny.stat().st_mode
    path.chmod(0o444)
    try:
        assert strata.load(path).complete("a", max_tokens=1).usage.prompt_tokens == 1
    finally:
        path.chmod(mode)


@pytest.mark.parametrize("size", ["0", "4", "100", "half", "one byte less"])
def test_a_truncated_file_is_refused_by_name(tiny, tmp_path, size) -> None:  # case M01
    data = tiny.read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(data[: {"half": len(data) // 2, "one byte less": len(data) - 1}.get(size) or int(size)])
    with pytest.raises(GgufError, match=r"cut\.gguf"):
        strata.load(path)


def test_a_set_of_shards_loads_from_any_and_misses_none(tiny, tmp_path) -> None:  # case M04
    names = list(tiny_tensors())
    shards = write_tiny(tmp_path / "m.gguf", shards=[names[:40], names[40:80], names[80:]])
    answer = strata.load(tiny).complete("The quick", max_tokens=8)
    assert [strata.load(path).complete("The quick", max_tokens=8) for path in shards] == [answer] * 3
    shards[1].unlink()
    with pytest.raises(GgufError, match=re.escape(shards[1].name)):
        strata.load(shards[0])


@pytest.mark.parametrize("found", ["qwen4exp2", "llama", None])
def test_another_architecture_is_refused_by_name(tmp_path, found) -> None:  # case M05
    metadata = tiny_metadata()
    del metadata["general.architecture"]
    path, *_ = write_tiny(tmp_path / "m.gguf", metadata | ({"general.architecture": found} if found else {}))
    with pytest.raises(ModelError, match=rf"^{path}: .*{found!r}.*'qwen4exp'"):
        strata.load(path)


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.ffn_gate_inp.weight", "blk.3.ffn_up_shexp.weight", "blk.3.indexer.k_proj.weight",
        "blk.1.ssm_conv1d.weight", "blk.2.hc_ffn_inject.weight", "blk.1.ple_key.weight",
        "blk.3.attn_q_norm.weight", "blk.2.ffn_down_exps.weight",
    ],
)  # fmt: skip
def test_a_missing_or_misshapen_tensor_is_named_before_anything_loads(tmp_path, name) -> None:  # cases M06, M10
    tensors = tiny_tensors()
    value = tensors.pop(name)
    loaded: list[object] = []
    path, *_ = write_tiny(tmp_path / "m.gguf", tensors=tensors)
    with pytest.raises(ModelError, match=rf"^{path}: tensor {name} is missing; expected shape") as caught:
        strata.load(path, on_load=lambda *_: loaded.append(1))
    assert str(list(value.shape)) in str(caught.value)
    wrong = np.zeros((*value.shape[:-1], value.shape[-1] + 1), np.float32)
    path, *_ = write_tiny(tmp_path / "m.gguf", tensors=tensors | {name: wrong})
    with pytest.raises(ModelError) as caught:
        strata.load(path, on_load=lambda *_: loaded.append(1))
    assert f"tensor {name} has shape {list(wrong.shape)}, expected {list(value.shape)}" in str(caught.value)
    assert not loaded


def test_a_model_larger_than_memory_is_refused_before_it_is_read(tiny, monkeypatch) -> None:
    memory = psutil.virtual_memory()._replace(available=1_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    loaded: list[object] = []
    monkeypatch.setattr(ram, "private", lambda: 200_000_000)
    with pytest.raises(
        DoesNotFitError, match=r"tiny does not fit: 5\d\d MB of RAM are needed, 201 MB are there: \d.*MB for d"
    ):
        strata.load(tiny, on_load=lambda *_: loaded.append(1))
    assert not loaded


def test_the_files_sampling_values_are_the_defaults(tmp_path) -> None:
    keys = {"temp": 1.0, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "penalty_repeat": 1.5, "penalty_last_n": 64}
    metadata = tiny_metadata() | {f"general.sampling.{key}": value for key, value in keys.items()}
    path, *_ = write_tiny(tmp_path / "m.gguf", metadata)
    sampling = strata.load(path).sampling
    top_p = float(np.float32(0.95))
    assert sampling == Sampling(1.0, top_k=20, top_p=top_p, repetition_penalty=1.5, penalty_window=64)
    path, *_ = write_tiny(tmp_path / "m.gguf", metadata | {"general.sampling.temp": -1.0})
    with pytest.raises(ModelError, match=r"general\.sampling\.temp, .*: temperature must be"):
        strata.load(path)


def test_a_file_without_template_completes_and_one_with_a_broken_one_is_refused(tmp_path) -> None:
    metadata = tiny_metadata()
    template = metadata.pop("tokenizer.chat_template")
    path, *_ = write_tiny(tmp_path / "m.gguf", metadata)
    model = strata.load(path)
    assert model.complete("a", max_tokens=1)
    with pytest.raises(TextError, match="no chat template"):
        model.chat("a")
    path, *_ = write_tiny(tmp_path / "m.gguf", metadata | {"tokenizer.chat_template": template + "{% if %}"})
    with pytest.raises(TextError, match="template"):
        strata.load(path)


def test_more_words_than_rows_are_refused(tmp_path) -> None:
    metadata = tiny_metadata()
    metadata["tokenizer.ggml.tokens"] = [*metadata["tokenizer.ggml.tokens"], "[PAD]"]
    metadata["tokenizer.ggml.token_type"] = np.append(metadata["tokenizer.ggml.token_type"], np.int32(5))
    path, *_ = write_tiny(tmp_path / "m.gguf", metadata)
    with pytest.raises(ModelError, match="the tokenizer has 513 tokens, but the embedding only 512 rows"):
        strata.load(path)


def test_a_nan_weight_ends_the_request_that_meets_it(tmp_path) -> None:  # cases M15, P02
    tensors = tiny_tensors()
    tensors["output.weight"] = tensors["output.weight"].copy()
    tensors["output.weight"][7, 3] = np.nan
    model = strata.load(write_tiny(tmp_path / "m.gguf", tensors=tensors)[0])
    with pytest.raises(NotFiniteError, match="nan for token 7"):
        model.complete("a", max_tokens=1)


def test_threads_are_set_or_refused(tiny, monkeypatch) -> None:
    before = torch.get_num_threads()
    answers = []
    try:
        answers.append(strata.load(tiny, threads=before + 1).complete("The quick", max_tokens=8))
        assert torch.get_num_threads() == workers.current().threads == before + 1
        answers.append(strata.load(tiny).complete("The quick", max_tokens=8))
        # A small model: sharing its work would cost more than it brings.
        assert torch.get_num_threads() == workers.current().threads == 1
        assert answers[0] == answers[1]
        torch.set_num_threads(before + 1)
        monkeypatch.setattr("strata.loading.network.SMALL", 0)
        strata.load(tiny)
        assert torch.get_num_threads() == before + 1
        assert workers.current().cpus == choose(read()).cpus
    finally:
        torch.set_num_threads(before)
        workers.use((None,))
    for threads in (0, -1, True, 1.0, 1025, 1 << 64):
        with pytest.raises(RequestError, match="threads must be an integer from 1 to 1024, not "):
            strata.load(tiny, threads=threads)  # type: ignore[arg-type]


def test_a_tilde_is_the_home_folder_unless_a_file_has_such_a_name(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "m.gguf").touch()
    assert bundled.find("~/m.gguf") == bundled.find(Path("~/m.gguf")) == tmp_path / "home" / "m.gguf"
    assert bundled.find("~nobody-has-this-name/m.gguf") == Path("~nobody-has-this-name/m.gguf")
    (tmp_path / "~").mkdir()
    (tmp_path / "~" / "m.gguf").touch()
    assert bundled.find("~/m.gguf") == Path("~/m.gguf")


def test_names_mean_the_models_in_the_box(tmp_path, monkeypatch) -> None:
    assert bundled.find(None) == bundled.find("pebble") == pebble.path("q8_0")
    assert bundled.find("pebble-iq3") == pebble.path("iq3")
    assert set(BUNDLED.values()) == set(pebble.VARIANTS)
    (tmp_path / "pebble").touch()
    monkeypatch.chdir(tmp_path)
    assert bundled.find("./pebble") == bundled.find(Path("pebble")) == Path("pebble")
    with pytest.raises(GgufError, match="File name too long"):
        strata.load("l" * 5000 + ".gguf")
    with pytest.raises(StrataError, match="no file 'peble', and the models in the box are pebble and pebble-iq3"):
        bundled.find("peble")
    with pytest.raises(GgufError, match=r"none\.gguf"):
        strata.load(tmp_path / "none.gguf")
    monkeypatch.setattr(pebble, "path", lambda _: tmp_path / "gone.gguf")
    with pytest.raises(StrataError, match=r"missing from this installation: no file .*gone\.gguf"):
        strata.load()


@pytest.mark.parametrize("process", [False, True])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"ram": 10**30}, r"ram must be a positive number of bytes below 2\^62, not 10{30}"),
        ({"ram": 0}, "ram must be a positive number of bytes"),
        ({"vram": -1}, r"vram must be a number of bytes below 2\^62, not -1"),
        ({"headroom": True}, "headroom must be a number of bytes"),
        ({"context": 10**30}, r"the context must be an integer of at least 2 tokens, and below 2\^40, not 10{30}"),
        ({"queue": 10**30}, "queue is out of range: 10{30}"),
    ],
)
def test_numbers_that_no_machine_has_are_refused_by_name(tiny, given, said, process) -> None:
    """Before another process is asked, which could not be sent them."""
    with pytest.raises(RequestError, match=f"^{said}"):
        strata.load(tiny, process=process, **given)


@pytest.mark.parametrize("process", [False, True])
def test_an_empty_folder_is_not_the_current_one(tiny, process) -> None:
    with pytest.raises(StrataError, match="folder must be a path, not an empty text"):
        strata.load(tiny, process=process, folder="").close()
