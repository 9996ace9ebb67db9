"""Recorded windows whose tokens the device chooses and commits, against the host's choice, launch by launch."""

from dataclasses import replace

import pytest
import torch

from strata.engine import Drafting, Finish, Generation, Guesses, Request, Sampling, step
from strata.gguf import open_model
from strata.model import Network, load_config, load_weights
from strata.ops.gpu.ops import GpuOps
from strata.ops.gpu.pool import Pool
from strata.ops.gpu.upload import Upload
from support.stored import write_stored

pytestmark = pytest.mark.gpu
DEVICE = torch.device("cuda")


class HostChooses(GpuOps):
    """As if the device could not."""

    looks = False

    def decide(self, done, rules):  # noqa: ARG002
        return None


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    directory = open_model(write_stored(tmp_path_factory.mktemp("tiny") / "m.gguf", name="yarn"))
    config = replace(load_config(directory.metadata), mtp=False)
    weights = Upload(DEVICE).all(load_weights(directory, config))

    def network(kind: type[GpuOps], *, graphs: bool) -> Network:
        return Network(config, weights, kind(config, Pool(config, DEVICE, slots=4, cells=2048), DEVICE, graphs=graphs))

    return network(GpuOps, graphs=True), network(HostChooses, graphs=True), network(HostChooses, graphs=False)


class Oracle:
    """Guesses of which so many are right, window by window."""

    def __init__(self, text, right) -> None:
        self.text, self.right, self.at, self.windows = text, right, 0, 0

    def guess(self, state, tokens, most):  # noqa: ARG002
        self.at += len(tokens)
        right = self.right[self.windows % len(self.right)]
        self.windows += 1
        known = self.text[self.at : self.at + min(3, most)]
        return Guesses(tuple(t if i < right else (t + 1) % 90 for i, t in enumerate(known)), "oracle")

    def learn(self, guesses, accepted, seconds) -> None: ...


def answers(network, prompts, count, drafter=None, logprobs=None, sampling=()):
    requests = [
        Request("", tuple(p), s, max_tokens=count, drafting=Drafting(0), logprobs=logprobs)
        for p, s in zip(prompts, sampling or [Sampling()] * len(prompts), strict=True)
    ]
    running = [Generation(network, network.new_state(), request, drafter=drafter) for request in requests]
    for generation in running:
        while generation.reading:
            first = generation.read()
    events = [[] for _ in running] if len(running) > 1 else [first]
    while any(not g.finished for g in running):
        for found, new in zip(events, step(network, running), strict=True):
            found.extend(new)
    states = [[(name, x.clone()) for name, x in g.state.tensors()] for g in running]
    return events, states


def same(ours, theirs):
    for one, other in zip(ours[0], theirs[0], strict=True):
        assert [e.id for e in one[:-1]] == [e.id for e in other[:-1]]
        assert isinstance(one[-1], Finish)
        for a, b in zip(one[:-1], other[:-1], strict=True):
            assert abs(a.logprob - b.logprob) < 2e-6
            assert [i for i, _ in a.top] == [i for i, _ in b.top]
    for one, other in zip(ours[1], theirs[1], strict=True):
        for (name, x), (_, y) in zip(one, other, strict=True):
            assert torch.equal(x, y), name


@torch.inference_mode()
@pytest.mark.parametrize("right", [[3], [0], [1, 3, 0, 2], [2, 0]], ids=str)
def test_guesses(networks, right):
    text = [e.id for e in answers(networks[2], [range(5, 45)], 40)[0][0][:-1]]
    expected = answers(networks[2], [range(5, 45)], 40, Oracle(text, right), 3)
    for network in networks[:2]:
        same(answers(network, [range(5, 45)], 40, Oracle(text, right), 3), expected)


@torch.inference_mode()
def test_one_and_three_conversations(networks):
    for prompts in ([range(5, 9)], [range(5, 15), range(7, 12), range(20, 60)]):
        expected = answers(networks[2], prompts, 30)
        for network in networks[:2]:
            same(answers(network, prompts, 30), expected)


SAMPLED = [
    Sampling(0.8, top_k=20, top_p=0.9, seed=2),
    Sampling(0.7, seed=3),
    Sampling(0.9, top_p=0.8, seed=4, repetition_penalty=1.1, frequency_penalty=0.2, logit_bias={7: 1.5, 9: -100}),
    Sampling(repetition_penalty=1.3),
]


@torch.inference_mode()
@pytest.mark.parametrize("sampling", SAMPLED, ids=str)
def test_candidates_of_recorded_windows_give_the_hosts_tokens(networks, sampling):
    """With guesses of which some are right, so that windows have one to four rows."""
    text = [e.id for e in answers(networks[2], [range(5, 45)], 30, None, 3, [sampling])[0][0][:-1]]
    oracles = [Oracle(text, [1, 3, 0, 2]) for _ in range(2)]
    found, expected = (
        answers(network, [range(5, 45)], 30, oracle, 3, [sampling])
        for network, oracle in zip((networks[0], networks[2]), oracles, strict=True)
    )
    same(found, expected)


@torch.inference_mode()
def test_candidates_in_company(networks):
    prompts = [range(5, 15), range(7, 12), range(20, 60), range(30, 40)]
    same(*(answers(network, prompts, 30, sampling=SAMPLED) for network in (networks[0], networks[2])))
