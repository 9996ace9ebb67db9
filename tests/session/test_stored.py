"""The promises of conversations on matrices as they are stored, which is how models are loaded: Pebble's two files, and
random weights whose indexer budget is exceeded.

Answers that came one by one, on a fresh state, without drafts and with one thread are what everything is held against.
"""

import functools
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from strata import pebble
from strata.engine import Drafting, Request, Sampling
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.ops import bind, workers
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.network import prompt
from support.serving import Alone, answer, drain, finish, ids, run
from support.stored import write_stored

MODELS = ("pebble", "pebble-iq3", "tiny")
PLAIN = Sampling()
WARM = Sampling(1.1, top_k=50, seed=5, repetition_penalty=1.2, penalty_window=20)


@functools.cache
def network(path: Path) -> Network:
    directory = open_model(path)
    config = load_config(directory.metadata)
    return Network(config, load_weights(directory, config), bind("cpu", config), drafts=True)


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(autouse=True)
def threads():
    before = workers.current().cpus
    workers.use((None,))
    yield lambda count: workers.use((None,) * count)
    workers.use(before)


@pytest.fixture(scope="module", params=MODELS)
def net(request, tmp_path_factory):
    if request.param == "tiny":
        return network(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf"))
    return network(pebble.path({"pebble": "q8_0", "pebble-iq3": "iq3"}[request.param]))


@pytest.fixture(scope="module")
def alone(net):
    return Alone(net)


def drafting(chance: random.Random) -> Drafting:
    """Off, or any depth, from the text so far, the draft head, or both."""
    depth, head = chance.randint(0, 7), chance.random() < 0.7
    return Drafting(depth, lookup=not head or chance.random() < 0.5, head=head, floor=chance.choice([0.0, 0.3]))


def texts(net: Network) -> list[list[int]]:
    """Beginnings of conversations: repetitive ones, of which one is longer than the indexer's budget."""
    base = prompt("base", 11)
    long = base * (net.config.qsa.budget // len(base) + 3)
    return [base * 3, base[:1], [*base, *base[4:9]], long, [*long[:70], 9, 8, 7]]


def test_any_number_at_a_time_equals_each_alone_for_any_threads(net, alone, threads, tmp_path) -> None:
    chance, begun = random.Random(11), texts(net)
    for turn, count in enumerate((1, 2, 3)):
        options = Options(
            step=64, rows=(64, 128, 64)[turn], reserve=0, folder=tmp_path, ram=(1 << 30, 0, 1 << 30)[turn]
        )
        asked = [
            Request(
                f"{turn}-{i}",
                tuple(chance.choice(begun)),
                chance.choice([PLAIN, WARM]),
                max_tokens=chance.randint(1, 12),
                drafting=drafting(chance),
            )
            for i in range(9)
        ]
        due = sorted((chance.randint(0, 30), i) for i in range(len(asked)))
        scheduler = Scheduler(net, options)
        threads(count)

        def before(tick, due=due, scheduler=scheduler, asked=asked) -> None:
            while due and (due[0][0] <= tick or scheduler.idle):
                scheduler.submit(asked[due.pop(0)[1]])

        found = drain(scheduler, before)
        threads(1)
        for one in asked:
            assert answer(found[one.id]) == alone(one)
        if turn:
            assert scheduler.stats().hits > 0, "what an earlier process left is gone on from"
        begun += [[*asked[i].prompt, *ids(found[asked[i].id]), 5] for i in (0, 4)]
        scheduler.close()


def test_every_depth_of_drafts_says_the_same(net, alone) -> None:
    accepted = drafted = 0
    for sampling in (PLAIN, WARM):
        for depth in range(8):
            one = Request(f"{depth}", tuple(texts(net)[0]), sampling, max_tokens=16)
            guessing = replace(one, drafting=Drafting(depth, head=True, lookup=depth % 2 == 1, floor=0.0))
            events = run(Scheduler(net, Options(keep=False)), guessing)[one.id]
            assert answer(events) == alone(one)
            drafted += sum(finish(events).usage.drafted.values())
            accepted += sum(finish(events).usage.accepted.values())
    assert drafted > 100
    assert accepted > 0 or net.config.name == "tiny", "random weights are hard to guess"
