"""Pebble on a GPU: one text whatever runs beside it, is guessed, or was read before; and near the CPU's."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from strata import pebble
from strata.engine import Drafting, Request, Sampling, Token, generate
from strata.gguf import open_model
from strata.loading import gpu
from strata.loading.cache import cached_as
from strata.model import Network, load_config, load_weights
from strata.ops import bind
from strata.session.options import Options
from strata.session.scheduler import Scheduler

pytestmark = pytest.mark.gpu
PROMPTS = json.loads((Path(__file__).parent / "pebble_prompts.json").read_text("utf-8"))
"""Token ids: a count, a copy, a sum with thinking, a tool call, and a fact in a long text, with the right answers."""

CARD = gpu.find("cuda")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module", params=[("q8_0", None), ("iq3", None), ("iq3", "q8")], ids=str)
def file(request):
    name, kv = request.param
    directory = open_model(pebble.path(name))
    config = cached_as(load_config(directory.metadata), kv)
    return config, load_weights(directory, config), directory


def on_gpu(file, conversations=8, cells=None):
    config, weights, directory = file
    if cells is not None:
        config = replace(config, context=cells)
    network, _ = gpu.network(CARD, weights, config, gpu.plan_for(CARD, directory, config, conversations), None)
    return replace(network, drafts=True)


@pytest.fixture(scope="module")
def network(file):
    return on_gpu(file)


def text(network, prompt, *, sampling=None, drafting=None):
    events = generate(
        network, network.new_state(), prompt, sampling or Sampling(), max_tokens=60, stop_ids=[2536], drafting=drafting
    )
    return [(event.id, event.logprob) for event in events if isinstance(event, Token)]


def test_it_is_right(network):
    for one in PROMPTS:
        said = [token for token, _ in text(network, one["prompt"])]
        assert said[: len(one["answer"])] == one["answer"][:60], one["name"]


def test_its_predictions_are_those_of_the_cpu(file, network):
    config, weights, _ = file
    cpu = Network(config, weights, bind("cpu", config))
    plain = replace(network, drafts=False)
    for one in PROMPTS[:4]:
        ids = [*one["prompt"], *one["answer"]]
        rows = [
            net.logits(net.read(net.new_state(), ids)[len(one["prompt"]) - 1 :]).float().cpu().double()
            for net in (cpu, plain)
        ]
        a, b = (x.log_softmax(-1) for x in rows)
        kl = (a.exp() * (a - b)).sum(-1)
        assert kl.mean() < 1e-3, (one["name"], kl.mean())


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, seed=4)], ids=["greedy", "sampled"])
def test_drafts_change_nothing(network, sampling):
    for one in PROMPTS[:4]:
        plain = text(network, one["prompt"], sampling=sampling)
        for drafting in (Drafting(1, head=True, lookup=False), Drafting(7, head=True, lookup=False), Drafting(3)):
            assert text(network, one["prompt"], sampling=sampling, drafting=drafting) == plain


def test_a_chain_guesses_what_its_steps_would(network):
    """All at once, recorded and not, against step by step; and both leave the same cells."""
    for one in PROMPTS[:3]:
        state, text_ = network.new_state(), [*one["prompt"], *one["answer"]]
        network.read(state, one["prompt"])
        for token, depth in zip(text_[len(one["prompt"]) :], (1, 4, 7, 4, 1, 7, 7, 4), strict=False):
            for floor in (0.0, 0.3):
                other = state.clone()
                steps = [int(x.argmax()) for x in network.draft(state, token, depth, floor)]
                assert network.guess(other, token, depth, floor).ids == tuple(steps)
                cells = [s.mtp.cells for s in (state, other)]
                for tables in (cells[0].pool.keys, cells[0].pool.values):
                    a, b = (tables[0][c.pages].flatten(0, 1)[: c.length + len(steps)] for c in cells)
                    assert torch.equal(a, b)
                a, b = (c.pool.left(c) for c in cells)
                assert torch.equal(a, b)
            network.commit(state, network.window([(state, [token])])[0], 1)


def drained(scheduler, requests):
    for request in requests:
        scheduler.submit(request)
    found = {request.id: [] for request in requests}
    while not scheduler.idle:
        for name, event in scheduler.tick():
            if isinstance(event, Token):
                found[name].append((event.id, event.logprob))
    return found


def asked(turn):
    return [
        Request(
            f"{turn} {i}",
            tuple(one["prompt"]),
            Sampling(0.5 * (i % 2), seed=i),
            frozenset([2536]),
            60,
            Drafting(i % 4, head=True, lookup=i % 2 == 0),
            exact=True,
        )
        for i, one in enumerate(PROMPTS)
    ]


def test_company_memory_files_and_want_of_room_change_nothing(file, network, tmp_path):
    expected = {request.id[2:]: text(network, request.prompt, sampling=request.sampling) for request in asked("a")}
    longest = max(len(one["prompt"]) for one in PROMPTS)
    small = on_gpu(file, cells=-(-(longest + 80) // 64) * 64)
    del small.ops._pool._pages[-(-(longest + 80) // 64) + 2 :]  # most of the pages are gone
    for name, net, options in (
        ("memory", network, Options(same_forms=False, rows=64, step=64)),
        ("files", network, Options(same_forms=False, rows=64, step=64, ram=0, folder=tmp_path / "a", reserve=0)),
        ("room", small, Options(same_forms=False, rows=64, step=64)),
    ):
        for turn in range(2):
            scheduler = Scheduler(net, options)
            for again in range(2):
                found = drained(scheduler, [replace(one, id=f"{again} {one.id[2:]}") for one in asked("x")])
                for who, said in found.items():
                    assert said == expected[who[2:]], (name, turn, who)
            assert scheduler.stats().cached_tokens > 0
            scheduler.close()
