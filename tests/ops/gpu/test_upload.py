"""Weights on the device: the same bytes however they are cut on their way, and every byte counted."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.errors import FormatError
from strata.formats import by_name
from strata.gguf import open_model
from strata.model import load_config, load_weights
from strata.model.weights import Quantised
from strata.ops import planes
from strata.ops.gpu import feed
from strata.ops.gpu.upload import Upload
from strata.ops.planes import LAYOUTS, pack, pack_each, unpack
from support.launch import NATIVE
from support.stored import write_stored

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.mark.parametrize("name", LAYOUTS)
def test_many_matrices_at_once_are_each_alone(name, monkeypatch):
    width, kind = 512, by_name(name)
    raw = torch.from_numpy(np.random.default_rng(2).integers(0, 256, (9, 5, kind.row_bytes(width)), dtype=np.uint8)).to(
        DEVICE
    )
    size = LAYOUTS[name].nbytes(5, width)
    monkeypatch.setattr(planes, "_CHUNK", 3 * raw[0].numel())
    slots = torch.zeros((9, size + 512), dtype=torch.uint8, device=DEVICE)
    pack_each(name, raw, width, slots[:, 100 : 100 + size])
    for e in range(9):
        alone = pack(name, raw[e], width, torch.zeros(size, dtype=torch.uint8, device=DEVICE))
        assert torch.equal(slots[e, 100 : 100 + size], alone)
    assert not slots[:, :100].any()
    assert not slots[:, 100 + size :].any()
    with pytest.raises(FormatError, match="as planes"):
        pack_each(name, raw, width, slots)


@pytest.mark.parametrize("piece", [2000, 1 << 20])
def test_a_matrix_in_pieces_is_the_matrix(piece, monkeypatch):
    monkeypatch.setattr(feed, "PIECE", piece)
    kind = by_name("IQ3_XXS")
    raw = np.random.default_rng(3).integers(0, 256, (41, kind.row_bytes(768)), dtype=np.uint8)
    sent = []
    upload = Upload(DEVICE, sent.append)
    matrix = upload._matrix(Quantised(kind, raw))
    np.testing.assert_array_equal(unpack("IQ3_XXS", matrix.data.cpu(), 41, 768).numpy(), raw)
    assert sum(sent) == raw.nbytes
    assert (len(sent) > 5) == (piece == 2000)


def test_a_model_in_small_pieces_is_the_model(tmp_path, monkeypatch):
    directory = open_model(write_stored(tmp_path / "m.gguf"))
    weights = load_weights(directory, load_config(directory.metadata))
    whole = Upload(DEVICE).all(weights)
    monkeypatch.setattr(feed, "PIECE", 5000)
    parts = Upload(DEVICE).all(weights)
    for a, b in zip(whole.layers, parts.layers, strict=True):
        assert torch.equal(a.moe.slots.data, b.moe.slots.data)
        assert torch.equal(a.moe.shared.data, b.moe.shared.data)
    assert torch.equal(whole.embed.planes, parts.embed.planes)
    assert torch.equal(whole.head.data, parts.head.data)


def test_an_interrupt_ends_it(tmp_path):
    directory = open_model(write_stored(tmp_path / "m.gguf"))
    weights = load_weights(directory, load_config(directory.metadata))

    def stop(_bytes: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Upload(DEVICE, stop).all(weights)
