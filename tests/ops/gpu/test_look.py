"""Candidates that the kernels find against the same in NumPy, and answers chosen from them against the host's."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine import Drafting, Finish, Guesses, Request, Sampling, Token, step
from strata.engine.chooser import Chooser
from strata.engine.generation import Generation
from strata.model import Network
from strata.model.candidates import MOST, RowWish, Touched, Wish
from strata.model.decision import Decision, Drawn
from strata.ops import dependent
from strata.ops.choice import reference
from support.launch import NATIVE
from support.network import network, prompt

pytestmark = pytest.mark.usefixtures("unchecked")

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


@pytest.mark.parametrize("kind", ["plain", "top", "touched masked", *(["touched", "masked"] if NATIVE else [])])
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
        self.looked = self.drawn = self.undecided = 0
        self.network = replace(net, ops=self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ops, name)

    def look(self, done: Sequence[Any], wishes: Sequence[Wish]):
        how, room = self._look.prepare(wishes)
        self._launch(done, wishes[0].banned, how, room)
        self.looked += 1
        return self._look.read(wishes, how)

    def draw(self, done: Sequence[tuple[Any, Any]], rules: Sequence[Drawn]):
        how = self._look.prepare_draw(rules)
        self._launch([one for _, one in done], rules[0].wish.banned, how, 0)
        fed = [one.ids for _, one in done]
        ids = torch.tensor([i for one in fed for i in one], dtype=torch.int32)
        first = torch.tensor([0, *np.cumsum([len(one) for one in fed])], dtype=torch.int32)
        self._look.launch_draw(ids.to(DEVICE), first.to(DEVICE), dependent.launch(DEVICE))
        outcomes = self._look.read_draw(rules, how)
        accepted = self._look.accepted[: len(done)].tolist()
        for (state, one), outcome, count in zip(done, outcomes, accepted, strict=True):
            assert count == (len(outcome.ids) if isinstance(outcome, Decision) else 0)
            if isinstance(outcome, Decision):
                self.network.commit(state, one, count)
            self.drawn += isinstance(outcome, Decision)
            self.undecided += not isinstance(outcome, Decision)
        return outcomes

    def _launch(self, done: Sequence[Any], banned: np.ndarray, how: int, room: int) -> None:
        logits = torch.from_numpy(self.network.predictions(done)).to(DEVICE)
        marks = torch.zeros(logits.shape[1], dtype=torch.int8)
        marks[torch.from_numpy(banned)] = 1
        self._look.launch(logits, marks.to(DEVICE), how, room, dependent.launch(DEVICE))


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


@pytest.mark.parametrize("right", [0, 2, 4] if NATIVE else [1])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(0.6, top_k=30, seed=1, **PENALTIES), Sampling(0.5, seed=5), Sampling(logit_bias={9: 2.5}, **PENALTIES),
        Sampling(0.7, top_k=20, top_p=0.9, min_p=0.02, seed=6),
    ],
    ids=["penalties", "drawn", "greedy", "filtered"],
)  # fmt: skip
def test_answers_with_guesses(sampling, right):
    request = Request(
        "",
        tuple(prompt("other", 30)),
        sampling,
        max_tokens=9 if NATIVE else 5,
        logprobs=2,
        drafting=Drafting(0),
        banned=[3],
    )
    text = [e.id for e in answers(network("other"), [request])[0] if isinstance(e, Token)]
    expected = answers(network("other"), [request], Oracle(text, right))
    device = Looking(network("other"))
    found = answers(device.network, [request], Oracle(text, right))
    same(found, expected)
    windows = found[0][-1].usage.windows
    assert (device.looked, device.drawn + device.undecided) == (
        (0, windows) if not sampling.penalises else (windows, 0)
    )
    assert device.undecided <= 1 < windows


def test_company_of_all_kinds():
    requests = [
        Request("", tuple(prompt("other", 9 + i, i)), sampling, max_tokens=4, drafting=Drafting(0), logprobs=3 * i)
        for i, sampling in enumerate((Sampling(), Sampling(0.7, top_p=0.9, seed=2), Sampling(1.0, **PENALTIES)))
    ]
    expected = answers(network("other"), requests)
    device = Looking(network("other"))
    same(answers(device.network, requests), expected)
    assert (device.looked, device.drawn) == (3, 0), "one of them has penalties"
    assert MOST < network("other").config.V


class Only:
    """A grammar of the same tokens everywhere."""

    finished = False

    def __init__(self, ids: np.ndarray, size: int) -> None:
        self._allowed = np.zeros(size, np.bool_)
        self._allowed[ids] = True

    def allowed(self):
        return self._allowed

    def advance(self, token: int) -> None: ...

    def forced(self) -> list[int]:
        return []

    def fork(self) -> "Only":
        return self


SMALL = 600

drawing = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 2.0, 1e-6]),
    top_k=st.sampled_from([0, 0, 1, 20, 64]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.5, 0.0]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.4, 1.0]),
    seed=st.integers(0, 1 << 30),
)


@settings(max_examples=300 if NATIVE else 3, deadline=None)  # the interpreter takes long for each
@given(st.integers(0, 1 << 30), st.lists(drawing, min_size=4, max_size=4))
def test_what_is_certain_is_what_the_host_draws(seed, each):
    """Four conversations, of two rows each whose guess may be right, with rows of every kind."""
    from strata.ops.gpu.look import Look

    rng = np.random.default_rng(seed)
    logits = (rng.standard_normal((8, SMALL)) * 2).astype(np.float32)
    logits[:4] += np.where(rng.random((4, SMALL)) < 0.04, 8, 0).astype(np.float32)
    logits[4] = np.round(logits[4])
    logits[5] *= np.float32(1e-3)
    logits = logits[rng.permutation(8)]
    banned, forms = np.array([2]), [None, None, Only(rng.integers(3, SMALL, 5), SMALL), Only(np.arange(90), SMALL)]

    def choosers():
        return [
            Chooser(s, vocabulary=SMALL, banned=banned, stop_ids=[7], constraint=form, logprobs=3)
            for s, form in zip(each, forms, strict=True)
        ]

    expected, guesses = [], []
    for i, (one, again) in enumerate(zip(choosers(), choosers(), strict=True)):
        first = one.verify(logits[2 * i : 2 * i + 1], [], 9).tokens[0].id
        guesses.append([first if rng.random() < 0.7 else 11])
        expected.append(again.verify(logits[2 * i : 2 * i + 2], guesses[-1], 9))
    rules = [one.drawing(guess, 9) for one, guess in zip(choosers(), guesses, strict=True)]
    look, launch = Look(SMALL, DEVICE), dependent.launch(DEVICE)
    marks = torch.zeros(SMALL, dtype=torch.int8)
    marks[banned] = 1
    how = look.prepare_draw(rules)
    look.launch(torch.from_numpy(logits).to(DEVICE), marks.to(DEVICE), how, 0, launch)
    fed = torch.tensor([i for guess in guesses for i in (5, *guess)], dtype=torch.int32)
    look.launch_draw(fed.to(DEVICE), torch.arange(0, 10, 2, dtype=torch.int32).to(DEVICE), launch)
    for i, (outcome, verdict) in enumerate(zip(look.read_draw(rules, how), expected, strict=True)):
        if isinstance(outcome, Decision):
            assert outcome.ids == tuple(token.id for token in verdict.tokens)
            assert outcome.logprobs == pytest.approx([token.logprob for token in verdict.tokens], abs=1e-5)
            assert [[t for t, _ in top] for top in outcome.tops] == [[t for t, _ in x.top] for x in verdict.tokens]
        elif each[i].greedy:
            pytest.fail("the likeliest is always certain")
        else:  # the host goes on from what was found
            last = choosers()[i].verify_found(outcome, guesses[i], 9, lambda row, i=i: logits[2 * i + row])
            assert [t.id for t in last.tokens] == [t.id for t in verdict.tokens]


def test_what_is_certain_is_most():
    """Of rows like those of text, nearly all."""
    from strata.ops.gpu.look import Look

    rng, launch = np.random.default_rng(4), dependent.launch(DEVICE)
    x = (rng.standard_normal((8, SMALL)) + np.where(rng.random((8, SMALL)) < 0.04, 8, 0)).astype(np.float32)
    each = [
        Sampling(0.7, seed=i, **more) for i in range(2) for more in ({}, {"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.1})
    ]
    rules = [Chooser(s, vocabulary=SMALL, stop_ids=[7]).drawing([], 3) for s in each]
    look, how = Look(SMALL, DEVICE), 0
    assert look.prepare_draw(rules) == how
    look.launch(torch.from_numpy(x).to(DEVICE), torch.zeros(SMALL, dtype=torch.int8, device=DEVICE), how, 0, launch)
    look.launch_draw(
        torch.zeros(8, dtype=torch.int32, device=DEVICE), torch.arange(9, dtype=torch.int32, device=DEVICE), launch
    )
    assert sum(isinstance(one, Decision) for one in look.read_draw(rules, how)) >= 7


def test_borders_decide_nothing():
    """Four equal tokens: a draw of half and a share of half are the host's, and so is a row behind a right guess."""
    from strata.ops.gpu.look import Look

    x = torch.full((6, SMALL), -80.0)
    x[:, [20, 90, 100, 200]] = 3.0
    nothing, launch = np.empty(0, np.int64), dependent.launch(DEVICE)

    def rule(*draws: float, **more: float) -> Drawn:
        return Drawn(
            Wish(nothing, 0, 1.0, tuple(map(RowWish, draws))), (7,), **{"top_k": 0, "top_p": 1, "min_p": 0} | more
        )

    rules = [rule(0.5), rule(0.3, top_p=0.5), rule(0.3), rule(0.3, 0.5), rule(0.8)]
    look = Look(SMALL, DEVICE)
    how = look.prepare_draw(rules)
    look.launch(x.to(DEVICE), torch.zeros(SMALL, dtype=torch.int8, device=DEVICE), how, 0, launch)
    fed = torch.tensor([1, 1, 1, 1, 90, 1], dtype=torch.int32, device=DEVICE)
    look.launch_draw(fed, torch.tensor([0, 1, 2, 3, 5, 6], dtype=torch.int32, device=DEVICE), launch)
    outcomes = look.read_draw(rules, how)
    assert [one.ids if isinstance(one, Decision) else len(one) for one in outcomes] == [1, 1, (90,), 2, (200,)]
    assert look.accepted[:5].tolist() == [0, 0, 1, 0, 1]
