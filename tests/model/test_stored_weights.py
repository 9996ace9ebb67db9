"""Whole models on matrices as they are stored: close to float32, and the promises of the forward pass to the byte."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch

from strata import pebble
from strata.formats import by_name, dequantise
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights, take_inventory
from strata.model.take import Taker
from strata.model.weights import KEPT, Quantised
from strata.ops import bind, workers
from support import quantised, tiny
from support.blocks import random_blocks
from support.network import prompt
from support.stored import write_stored


def load(path: Path, *, exact: bool = False) -> Network:
    directory = open_model(path)
    config = load_config(directory.metadata)
    return Network(config, load_weights(directory, config, exact=exact), bind("cpu", config), drafts=config.mtp)


@functools.cache
def shipped(variant: str, *, exact: bool = False) -> Network:
    return load(pebble.path(variant), exact=exact)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture
def threads():
    """Sets the number of threads, and takes it back."""
    before = workers.current().cpus
    yield lambda count: workers.use((None,) * count)
    workers.use(before)


def logits(net: Network, ids: list[int]) -> torch.Tensor:
    return net.logits(net.read(net.new_state(), ids))


@pytest.mark.parametrize("variant", pebble.VARIANTS)
def test_eight_bits_of_activations_change_little(variant):
    """A rounding to 1/127 of a block's peak is off by 0.5% of a normal number (peak 2.1, step / sqrt(12)).

    A residual of eight layers adds some sixteen such contributions: about 2% of what logits vary, if nothing amplifies
    it.
    """
    ids = prompt("base", 60)
    stored, exact = logits(shipped(variant), ids), logits(shipped(variant, exact=True), ids)
    error = (stored - exact).square().mean().sqrt() / exact.std()
    assert 1e-3 < error < 0.1


@pytest.mark.parametrize("source", ["q8_0", "iq3", "tiny"])
def test_rows_windows_and_threads_change_no_byte(source, threads, tmp_path):
    net = load(write_stored(tmp_path / "m.gguf")) if source == "tiny" else shipped(source)
    ids = [i % net.config.V for i in prompt("base", 40)]
    found = []
    for count, rows in ((1, 1), (2, 3), (3, 8)):
        threads(count)
        state = net.new_state()
        net.read(state, ids[:20])
        parts = []
        for first in range(20, 36, rows):
            window = net.window([(state, ids[first : min(first + rows, 36)])])[0]
            parts.append(net.logits(window.residual))
            net.commit(state, window, len(window.ids))
        drafts = torch.stack(net.draft(state, ids[36], 3))
        found.append((torch.cat(parts), drafts, [t.clone() for _, t in state.tensors()]))
    for windows, drafts, state in found[1:]:
        assert windows.equal(found[0][0])
        assert drafts.equal(found[0][1])
        assert all(map(torch.equal, state, found[0][2]))


@pytest.mark.parametrize("variant", pebble.VARIANTS)
def test_a_prompt_is_read_to_the_same_bytes_by_any_number_of_threads(variant, threads):
    ids = [i % 2560 for i in prompt("base", 70)]
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(logits(shipped(variant), ids))
    assert found[1].equal(found[0])
    assert found[2].equal(found[0])


def matrices(value) -> list[Quantised]:
    """All stored matrices of weights."""
    if isinstance(value, Quantised):
        return [value]
    if isinstance(value, tuple):
        return [found for part in value for found in matrices(part)]
    if hasattr(value, "__dataclass_fields__"):
        return [found for name in value.__dataclass_fields__ for found in matrices(getattr(value, name))]
    return []


def test_nothing_is_copied_and_every_byte_is_counted():
    directory = open_model(pebble.path("iq3"))
    config = load_config(directory.metadata)
    inventory, weights = take_inventory(directory, config), load_weights(directory, config)
    buffer = directory.data_files[0].buffer
    found = {id(matrix): matrix for matrix in matrices(weights)}.values()
    copied = [matrix for matrix in found if not np.shares_memory(matrix.raw, buffer)]
    assert sorted(matrix.shape for matrix in copied) == [(256, 256), (256, 256)]  # the halves of eh_proj
    tables = ("token_embd.weight", "per_layer_token_embd.weight")
    floats = [info for name, info in directory.tensors.items() if len(info.shape) == 1 or "conv1d" in name]
    stored = sum(matrix.raw.nbytes for matrix in found)
    assert inventory.bytes == stored + sum(4 * int(np.prod(info.shape)) for info in floats)
    whole = sum(info.nbytes for name, info in directory.tensors.items() if name not in tables)
    assert inventory.bytes == whole
    assert inventory.widened == ()
    exact = take_inventory(directory, config, exact=True)
    assert exact.bytes > 3.5 * inventory.bytes


def test_types_without_a_kernel_become_float32_and_are_named(tmp_path):
    path, _, used = quantised.write(tmp_path, "base", 0, split=False)
    directory = open_model(path)
    config = load_config(directory.metadata)
    widened = take_inventory(directory, config).widened
    assert widened
    assert set(widened) <= used - KEPT
    found = matrices(load_weights(directory, config))
    assert {matrix.type.name for matrix in found} <= KEPT
    held = {matrix.raw.tobytes() for matrix in found}
    names = [name for name, info in directory.tensors.items() if info.type.name in widened and "token_embd" not in name]
    assert names
    assert all(directory.load(name).tobytes() in held for name in names)
    net = load(path)
    assert torch.isfinite(logits(net, prompt("base", 30))).all()


def test_a_matrix_whose_cut_goes_through_a_block_becomes_float32():
    """The halves of eh_proj at a width that is no multiple of the block's."""
    rng = np.random.default_rng(0)
    for name, cut, kept in (("Q8_0", 32, True), ("Q8_0", 48, False), ("NVFP4", 64, True), ("NVFP4", 32, False)):
        raw = random_blocks(name, (3, 128), rng)
        directory = OneMatrix(raw, by_name(name))
        take = Taker(directory, kept=KEPT)
        found = take.matrix("m", 3, 128, cut=cut)
        assert isinstance(found, Quantised)
        assert found.type.name == (name if kept else "F32")
        assert take.bytes == found.raw.nbytes
        expected = directory.load("m")
        for part in (slice(cut), slice(cut, None)):
            half = found.inputs(part)
            np.testing.assert_array_equal(dequantise(half.type, half.raw), expected[:, part])


class OneMatrix:
    """A directory of one quantised matrix "m"."""

    def __init__(self, raw, kind):
        self._raw, self._kind = raw, kind
        shape = (*raw.shape[:-1], raw.shape[-1] // kind.bytes * kind.weights)
        self.tensors = {"m": tiny.MemoryInfo(shape, kind)}

    def raw(self, _):
        return self._raw

    def load(self, _):
        return dequantise(self._kind, self._raw)
