"""An n-gram table that is not on the device: the bytes of one that is, in windows and prompts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.formats import by_name
from strata.gguf import open_model
from strata.loading import storage
from strata.memory.ngram import MODES
from strata.model import forward, load_config, load_weights
from strata.model.weights import Quantised
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.record import Recording
from strata.ops.gpu.size import weight_bytes
from strata.ops.gpu.upload import Upload
from strata.ops.ngram import host
from strata.ops.ngram.host import HostTable
from support.blocks import random_blocks
from support.launch import NATIVE
from support.stored import write_stored

pytestmark = pytest.mark.usefixtures("unchecked")

DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf"))
    config = replace(load_config(directory.metadata), mtp=False)
    return directory, config, load_weights(directory, config)


class Held:
    """Rows of an array, as a reader has them."""

    def __init__(self, raw):
        self.raw, self.asked = raw, []

    def ask(self, numbers):
        self.asked.append(numbers.tolist())
        return numbers

    def take(self, asked):
        return self.raw[asked]


@pytest.mark.parametrize(
    ("kind", "few"), [("Q8_0", 0), ("IQ4_NL", 0), ("IQ4_NL", 100), ("Q5_1", 100), ("BF16", 0), ("F32", 0)]
)
def test_rows_are_those_of_a_table_on_the_device(kind, few, monkeypatch):
    monkeypatch.setattr(host, "FEW", few)
    rng = np.random.default_rng(1)
    raw = (
        random_blocks(kind, (40, 160), rng, 0.1) if kind != "F32" else rng.standard_normal((40, 160)).astype(np.float32)
    )
    raw = np.ascontiguousarray(raw).view(np.uint8).reshape(40, -1)
    table = HostTable((40, 160), by_name(kind), Held(raw), DEVICE)

    class Whole:
        shape = (40, 160)

        def stored(self):
            return Quantised(by_name(kind), raw)

    monkeypatch.setattr("strata.ops.gpu.upload.FileTable", Whole)
    expected = Upload(DEVICE)._table(Whole())
    ids = torch.tensor([39, 0, 7, 7, 12], device=DEVICE)
    assert torch.equal(table.rows(ids), expected.rows(ids))
    assert torch.equal(table.rows(ids.tolist()), expected.rows(ids))


@pytest.mark.parametrize("mode", MODES)
def test_windows_and_prompts_ask_for_what_they_need(model, mode):
    directory, config, weights = model
    there, found = storage.hosted(weights, directory, mode, DEVICE)
    (number,) = [i for i, layer in enumerate(weights.layers) if layer.ple]
    assert weight_bytes(there)[1] < weight_bytes(weights)[1]
    moved, whole = (Upload(DEVICE)._layer(w.layers[number]).ple for w in (there, weights))
    assert isinstance(moved.table, HostTable)
    ops = GpuOps(config, Pool(config, DEVICE, slots=2, cells=256, kv=torch.float32), DEVICE, graphs=False)
    ids = (5, 9, 5)

    def batch(*, window):
        state = ops.new_state(drafts=False)
        positions = torch.arange(3)[:, None].repeat(1, 3)
        return ops.begin(forward.segments([(state, ids, positions)]), window=window), state

    mine, state = batch(window=True)
    asked = ops.ngram_ask(ops.ngram_numbers(mine), moved)
    got = ops._brought(ops.ngram_rows(asked, moved), moved.table)
    expected = whole.table.rows(ops._numbers(mine).reshape(-1)).reshape(3, -1)
    assert torch.equal(got, expected)
    passing, other = batch(window=False)
    prompt = ops.over(passing)
    assert not prompt._kept
    halves = [prompt.ngram_rows(prompt.ngram_ask(prompt.ngram_numbers(passing), w), w).half for w in (moved, whole)]
    assert torch.equal(*halves)
    assert found.rows.waits.asked == 2
    found.close()
    del state, other


def test_what_the_host_does_between_parts_is_repeated(monkeypatch):
    """Captures of a device that is none: parts and actions in their order, each time."""
    log = []

    class Graph:
        def __init__(self):
            self.what = ""

        def capture_begin(self, pool=None):  # noqa: ARG002
            log.append("begin")

        def capture_end(self):
            log.append("end")

        def pool(self):
            return 0

        def replay(self):
            log.append("part")

    class Capture:
        def __init__(self, graph, pool=None):  # noqa: ARG002
            self.cuda_graph = graph

        def __enter__(self):
            self.cuda_graph.capture_begin()

        def __exit__(self, *_):
            self.cuda_graph.capture_end()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr("strata.ops.gpu.record.recorded", Capture)
    recording = Recording()
    with recording.capture():
        recording.host(lambda: log.append("ask"))
        recording.cut()
        recording.host(lambda: log.append("take"))
    assert log == ["begin", "end"] * 4
    for _ in range(2):
        log.clear()
        recording.replay()
        assert log == ["part", "ask", "part", "part", "take", "part"]
