"""A draft head in a file of its own, pulled beside the model: found, run, counted, and of no matter for the text."""

import shutil

import pytest
import torch

import strata
from strata import pebble
from strata.cli.main import main
from strata.errors import ModelError
from strata.gguf import open_model
from strata.gguf.writer import TensorData, write_model
from strata.hub.folder import Folder, Receipt
from strata.loading.files import ModelFile
from strata.loading.sizes import sizes_of
from strata.model import load_config

HEAD = "blk.8."


def raw(directory, names) -> list[TensorData]:
    tensors = directory.tensors
    return [TensorData(name, tensors[name].shape, tensors[name].type, directory.raw(name)) for name in names]


@pytest.fixture
def pulled(tmp_path):
    """Pebble in two files, as `strata pull` leaves them: a folder for the model, one for the head."""
    whole = open_model(pebble.path("iq3"))
    folder = Folder(tmp_path / "models")
    home = folder.home("maker/Pebble")
    for name in ("IQ3", "mtp"):
        (home / name).mkdir(parents=True)
    metadata = {key: whole.metadata[key] for key in whole.metadata}
    counts = {"qwen4exp.block_count": 8, "qwen4exp.nextn_predict_layers": 0}
    names = [name for name in whole.tensors if not name.startswith(HEAD)]
    write_model(home / "IQ3/pebble-IQ3.gguf", metadata | counts, raw(whole, names))
    mine = [name for name in whole.tensors if name.startswith(HEAD)]
    write_model(home / "mtp/head.gguf", {"general.architecture": "qwen4exp"}, raw(whole, mine))
    path = home / "IQ3/pebble-IQ3.gguf"
    size = path.stat().st_size
    folder.write(
        Receipt("maker/Pebble", "IQ3", "0" * 40, ("IQ3/pebble-IQ3.gguf",), (size,), ("",), draft="mtp/head.gguf")
    )
    return path


def test_it_is_found_and_drafts_as_if_it_were_in_one_file(pulled) -> None:
    with strata.load("pebble-iq3") as one, strata.load(pulled) as two:
        assert two.network.config == one.network.config
        replies = [model.chat("Count from 1 to 9.") for model in (one, two)]
        assert replies[0].text == replies[1].text
        guesses = []
        for model in (one, two):
            state = model.network.new_state()
            model.network.read(state, list(range(5, 45)))
            model.network.settle(state)
            guesses.append(model.network.draft(state, 7, 4))
        assert len(guesses[0]) == 4
        assert all(map(torch.equal, *guesses))


def test_it_is_counted(pulled) -> None:
    file, whole = ModelFile.open(pulled), open_model(pebble.path("iq3"))
    found = sizes_of(file.directory, load_config(file.metadata), file.draft)
    expected = sizes_of(whole, load_config(whole.metadata))
    for name in ("dense", "draft", "layers", "table", "cells", "draft_cells", "work", "reads"):
        assert getattr(found, name) == getattr(expected, name), name
    assert found.stored == pytest.approx(expected.stored, rel=0.05), "small tensors become float32"


def test_conversations_of_one_with_and_one_without_are_not_mixed_up(pulled, tmp_path) -> None:
    alone = tmp_path / "alone.gguf"
    shutil.copy(pulled, alone)
    assert ModelFile.open(alone).draft is None
    assert ModelFile.open(alone).fingerprint != ModelFile.open(pulled).fingerprint
    with strata.load(alone) as model:
        assert not model.network.config.mtp


def test_a_head_of_another_model_is_refused_by_name(pulled, capsys) -> None:
    head = pulled.parents[1] / "mtp/head.gguf"
    whole = open_model(pebble.path("iq3"))
    write_model(head, {"general.architecture": "qwen4exp"}, raw(whole, ["blk.8.nextn.enorm.weight"]))
    with pytest.raises(
        ModelError, match=r"head.gguf: draft head: tensor .* is missing.*`strata pull --no-draft` goes without"
    ):
        strata.load(pulled)
    assert main(["plan", str(pulled), "--ram", "24GB"]) == 1
    assert "head.gguf: draft head: tensor" in capsys.readouterr().err
