"""Candidates that the kernels find against the same in NumPy, and answers chosen from them against the host's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.engine import Drafting, Finish, Guesses, Request, Sampling, Token, step
from strata.engine.generation import Generation
from strata.model import Network
from strata.model.candidates import MOST, RowWish, Touched, Wish
from strata.ops import dependent
from strata.ops.choice import reference
from support.launch import NATIVE
from support.network import network, prompt

V = 5000  # three parts
BANNED = np.array([5, 17, V - 1])
DEVICE = torch.device("cuda" if NATIVE else "cpu")


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def rows(rng: np.random.Generator) -> np.ndarray:
    """Like text; of few values; one value; infinite at ids that are no tokens; few and tiny numbers; broken."""
    x = rng.standard_normal((6, V)).astype(np.float32) * 3
    x[1] = np.round(x[1])
    x[2] = -0.0
    x[2, ::2] = 0.0
    x[3, BANNED] = np.inf, np.nan, -np.inf
    x[4] *= np.float32(1e-38)
    x[5, 4000] = np.nan
    return x


def asked(rng: np.random.Generator, kind: str) -> list[Wish]:
    """Of two conversations of three rows each."""

    def touched() -> Touched | None:
        if "touched" not in kind:
            return None
        ids = rng.choice(V, 1500, replace=False).astype(np.int32)
        shift = np.where(rng.random(1500) < 0.1, np.inf, rng.standard_normal(1500) * 2)
        return Touched(ids, rng.random(1500) < 0.5, shift.astype(np.float32), float(rng.choice([1.3, 0.7])))

    def mask(i: int):
        if "masked" not in kind or i == 1:
            return None
        few = rng.random(V) < (0.3, 0, 0.005)[i]
        few[[0, 31, 32, V - 2]] = True
        return few

    first = [RowWish(float(rng.random()), touched(), mask(i)) for i in range(3)]
    second = [RowWish(float(rng.random()), None, mask(i)) for i in range(3)]
    top = 0 if "plain" in kind else 20
    return [Wish(BANNED, top, 0.8, tuple(first)), Wish(BANNED, top // 4, 0.0, tuple(second))]


@pytest.mark.parametrize("kind", ["plain", "top", "touched", "masked", "touched masked"])
def test_the_kernels_find_what_the_formula_finds(kind):
    from strata.ops.gpu.look import Look

    rng = np.random.default_rng([*kind.encode()])
    logits, wishes = rows(rng), asked(rng, kind)
    banned = torch.zeros(V, dtype=torch.int8)
    banned[BANNED] = 1
    look, x = Look(V, DEVICE), torch.from_numpy(logits).to(DEVICE)
    how, room = look.prepare(wishes)
    assert how == ("masked" in kind) + 2 * (kind not in {"plain", "top"})
    assert room == (2048 if "touched" in kind else 0)
    look.launch(x, banned.to(DEVICE), how, room, dependent.launch(DEVICE))
    found = [one for here in look.read(wishes, how) for one in here]
    for x_, (wish, row), got in zip(logits, [(w, r) for w in wishes for r in w.rows], found, strict=True):
        with np.errstate(over="ignore"):
            expected = reference.look(x_, row, wish.banned, wish.temperature, wish.top)
        assert got.fault == expected.fault
        if got.fault:
            continue
        order = np.argsort(expected.ids)
        assert np.array_equal(got.ids, expected.ids[order])
        assert np.array_equal(got.logits, expected.logits[order])
        assert (got.whole, got.floor, got.largest) == (expected.whole, expected.floor, expected.largest)
        assert got.top == expected.top
        assert got.total == pytest.approx(expected.total, rel=2.0**-17)
        if wish.temperature:
            assert got.weight == pytest.approx(expected.weight, rel=2.0**-17)
            (token, logit, *shares), (known, _, *around) = got.drawn, expected.drawn
            assert shares == pytest.approx(around, abs=2.0**-16) or token != known
            assert shares[0] - 2.0**-16 <= row.draw <= shares[1] + 2.0**-16
            assert logit == x_[token]
    assert {one.whole for one in found} == ({True, False} if "masked" in kind else {False})


class Looking:
    """The CPU's operations, with a GPU's search for candidates."""

    looks = True

    def __init__(self, net: Network) -> None:
        from strata.ops.gpu.look import Look

        self._ops, self._look = net.ops, Look(net.config.V, DEVICE)
        self.looked = 0
        self.network = replace(net, ops=self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def look(self, done: Sequence[Any], wishes: Sequence[Wish]):
        logits = torch.from_numpy(self.network.predictions(done)).to(DEVICE)
        banned = torch.zeros(logits.shape[1], dtype=torch.int8)
        banned[torch.from_numpy(wishes[0].banned)] = 1
        how, room = self._look.prepare(wishes)
        self._look.launch(logits, banned.to(DEVICE), how, room, dependent.launch(DEVICE))
        self.looked += 1
        return self._look.read(wishes, how)


class Oracle:
    """Guesses of which so many are right."""

    def __init__(self, text: list[int], right: int) -> None:
        self.text, self.right, self.at = text, right, 0

    def guess(self, state: Any, tokens: Sequence[int], most: int) -> Guesses:  # noqa: ARG002
        self.at += len(tokens)
        known = self.text[self.at : self.at + min(4, most)]
        return Guesses(tuple(t if i < self.right else (t + 1) % 512 for i, t in enumerate(known)), "oracle")

    def learn(self, guesses: int, accepted: int, seconds: float) -> None: ...


def answers(net: Network, requests: list[Request], drafter: Any = None) -> list[list[Any]]:
    running = [Generation(net, net.new_state(), request, drafter=drafter) for request in requests]
    events: list[list[Any]] = [[] for _ in running]
    for generation, found in zip(running, events, strict=True):
        while generation.reading:
            found.extend(generation.read())
    while any(not g.finished for g in running):
        for found, new in zip(events, step(net, running), strict=True):
            found.extend(new)
    return events


def same(ours: list[list[Any]], theirs: list[list[Any]]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert [e.id for e in a if isinstance(e, Token)] == [e.id for e in b if isinstance(e, Token)]
        assert [[i for i, _ in e.top] for e in a[:-1]] == [[i for i, _ in e.top] for e in b[:-1]]
        assert isinstance(a[-1], Finish)
        assert a[-1] == b[-1]
        for x, y in zip(a[:-1], b[:-1], strict=True):
            assert x.logprob == pytest.approx(y.logprob, abs=2e-6)


PENALTIES = {"repetition_penalty": 1.2, "frequency_penalty": 0.3, "presence_penalty": 0.1, "penalty_window": 20}


@pytest.mark.parametrize("right", [0, 2, 4])
@pytest.mark.parametrize(
    "sampling",
    [Sampling(0.6, top_k=30, seed=1, **PENALTIES), Sampling(0.5, seed=5), Sampling(logit_bias={9: 2.5}, **PENALTIES)],
    ids=["filtered", "drawn", "greedy"],
)
def test_answers_with_guesses(sampling, right):
    request = Request(
        "", tuple(prompt("other", 30)), sampling, max_tokens=9, logprobs=2, drafting=Drafting(0), banned=[3]
    )
    text = [e.id for e in answers(network("other"), [request])[0] if isinstance(e, Token)]
    expected = answers(network("other"), [request], Oracle(text, right))
    device = Looking(network("other"))
    found = answers(device.network, [request], Oracle(text, right))
    same(found, expected)
    assert device.looked == found[0][-1].usage.windows > 1


def test_company_of_all_kinds():
    requests = [
        Request("", tuple(prompt("other", 9 + i, i)), sampling, max_tokens=4, drafting=Drafting(0), logprobs=3 * i)
        for i, sampling in enumerate((Sampling(), Sampling(0.7, top_p=0.9, seed=2), Sampling(1.0, **PENALTIES)))
    ]
    expected = answers(network("other"), requests)
    device = Looking(network("other"))
    same(answers(device.network, requests), expected)
    assert device.looked == 3
    assert MOST < network("other").config.V
