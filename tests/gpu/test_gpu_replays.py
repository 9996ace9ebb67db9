"""A window replayed over and over gives the same bytes: no race, no leftover of the window before.

In the released model's shapes with four layers, so that every kernel has the programs it has in earnest.
STRATA_TEST_REPLAYS is how often; 200 by itself.
"""

import os
from dataclasses import replace

import pytest
import torch

from strata.gguf import open_model
from strata.lab.synthetic.__main__ import main as write
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import KINDS, Pool
from strata.ops.gpu.upload import Upload

pytestmark = pytest.mark.gpu
REPLAYS = int(os.environ.get("STRATA_TEST_REPLAYS", "200"))
DEVICE = torch.device("cuda")


@pytest.fixture(scope="module", params=KINDS)
def network(tmp_path_factory, request):
    file = tmp_path_factory.mktemp("synthetic") / "m.gguf"
    small = ["--layers", "4", "--experts", "64", "--vocabulary", "4096", "--ngram-rows", "500"]
    assert write([str(file), *small]) == 0
    directory = open_model(file)
    config = replace(load_config(directory.metadata), mtp=False, context=8192)
    weights = Upload(DEVICE).all(load_weights(directory, config))
    file.unlink()
    pool = Pool(config, DEVICE, slots=4, cells=16384, kv=KINDS[request.param])
    return Network(config, weights, GpuOps(config, pool, DEVICE))


@pytest.mark.parametrize("rows", [1, 4, 8])
@torch.inference_mode()
def test_every_replay_gives_the_same_bytes(network, rows):
    dice = torch.Generator().manual_seed(rows)
    state = network.new_state()
    network.read(state, torch.randint(0, 4096, (3000,), generator=dice).tolist())
    windows = [torch.randint(0, 4096, (rows,), generator=dice).tolist() for _ in range(3)]
    first, different = {}, torch.zeros((), dtype=torch.int64, device=DEVICE)
    for turn in range(REPLAYS):
        which = turn % len(windows)
        done = network.window([(state, windows[which])])[0]
        logits = done.logits
        assert logits is not None
        if which not in first:
            first[which] = logits.clone()
            assert torch.isfinite(logits).all()
        different += (logits.view(torch.int32) != first[which].view(torch.int32)).sum()
        network.commit(state, done, 0)
    assert int(different) == 0
    assert not torch.equal(first[0], first[1])


@torch.inference_mode()
def test_shapes_that_share_their_memory_take_turns(network):
    """The first time nothing is recorded; from the second on every shape works where the others did."""
    dice = torch.Generator().manual_seed(9)
    states = [network.new_state() for _ in range(2)]
    for state in states:
        network.read(state, torch.randint(0, 4096, (3000,), generator=dice).tolist())
    shapes = {counts: [torch.randint(0, 4096, (count,), generator=dice).tolist() for count in counts]
              for counts in ((1,), (8,), (3,), (1, 1), (2,))}  # fmt: skip
    first, order = {}, list(shapes)
    for _ in range(8):
        for counts in order:
            passes = network.window(list(zip(states, shapes[counts], strict=False)))
            found = torch.cat([one.logits for one in passes])
            assert torch.isfinite(found).all()
            assert torch.equal(found, first.setdefault(counts, found.clone())), counts
            for state, one in zip(states, passes, strict=False):
                network.commit(state, one, 0)
        order = order[2:] + order[:2]
    # What moves behind the newest window is that window's, whatever the others left.
    accepted = []
    for between in (False, True):
        state = network.new_state()
        network.read(state, list(range(40)))
        for turn in range(6):
            if between:
                other = network.window([(states[0], shapes[8,][0])])[0]
                network.commit(states[0], other, 0)
            done = network.window([(state, [7 + turn, 8, 9])])[0]
            network.commit(state, done, 1 + turn % 3)
        accepted.append([(name, x.clone()) for name, x in state.tensors()])
        del state
    for (name, x), (_, y) in zip(*accepted, strict=True):
        assert torch.equal(x, y), name
