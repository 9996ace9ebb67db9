"""Tokens chosen from what a device names are those chosen from whole rows, whatever is asked for."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine import Sampling
from strata.engine.chooser import Chooser
from strata.engine.penalties import History
from strata.errors import StrataError
from strata.ops.choice.reference import look

V = 400
BANNED = np.array([3, V - 1])
STOPS = (7,)


class Form:
    """Some tokens may follow, depending on how many there were; it ends after so many, or breaks."""

    def __init__(self, seed: int, few: int, ends: int, breaks: int) -> None:
        self.seed, self.few, self.ends, self.breaks, self.at = seed, few, ends, breaks, 0

    @property
    def finished(self) -> bool:
        return self.at >= self.ends

    def allowed(self):
        if self.at == self.breaks:
            raise StrataError("broken")
        if self.seed % 5 == 4:
            return None
        allowed = np.zeros(V, np.bool_)
        allowed[np.random.default_rng([self.seed, self.at]).integers(0, V, self.few)] = True
        return allowed

    def advance(self, token: int) -> None:
        allowed = self.allowed()
        if allowed is not None and not allowed[token]:
            raise StrataError("not allowed")
        self.at += 1

    def forced(self) -> list[int]:
        return []

    def fork(self) -> "Form":
        twin = Form(self.seed, self.few, self.ends, self.breaks)
        twin.at = self.at
        return twin


settings_ = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.0, 0.3, 0.7, 1.0, 1.0, 2.0, 30.0, 1e-6, 1e-300]),
    top_k=st.sampled_from([0, 0, 1, 5, 40, 63, 64, 65, 90, V, V + 9]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.9, 0.5, 0.0, 0.9999]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.5, 1.0]),
    typical_p=st.sampled_from([1.0, 1.0, 1.0, 0.9, 0.2]),
    seed=st.integers(0, 1 << 30),
    repetition_penalty=st.sampled_from([1.0, 1.0, 1.1, 1.7, 0.8]),
    frequency_penalty=st.sampled_from([0.0, 0.0, 0.4, 2.0, -0.7]),
    presence_penalty=st.sampled_from([0.0, 0.0, 0.6, -1.5]),
    penalty_window=st.sampled_from([-1, -1, 1, 3, 20]),
    logit_bias=st.dictionaries(st.integers(0, V - 1), st.sampled_from([-100.0, 100.0, -3.3, 2.7, 0.1]), max_size=5),
)


def row(rng: np.random.Generator, kind: str) -> np.ndarray:
    """Logits: like those of text, nearly flat, of few values, or one that is certain."""
    x = rng.standard_normal(V) * 2
    if kind == "text":
        x = np.where(rng.random(V) < 0.05, x + 8, x)
    if kind == "flat":
        x *= 1e-3
    if kind == "ties":
        x = np.round(x)
    if kind == "edge":  # the 64th is as large as the 65th
        x = np.where(np.arange(V) % 6 == 1, 4.0, x)
    if kind == "certain":
        x[int(rng.integers(V))] = 60
    return x.astype(np.float32)


def chooser(sampling, form, prompt, top):
    return Chooser(
        sampling, vocabulary=V, banned=BANNED, stop_ids=STOPS, prompt=prompt,
        constraint=form.fork() if form else None, logprobs=top,
    )  # fmt: skip


@st.composite
def cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 1 << 30)))
    kinds = draw(st.lists(st.sampled_from(["text", "flat", "ties", "edge", "certain"]), min_size=1, max_size=5))
    rows = np.stack([row(rng, kind) for kind in kinds])
    if draw(st.integers(0, 9)) == 0:
        rows[draw(st.integers(0, len(rows) - 1)), 11] = draw(st.sampled_from([np.nan, np.inf, -np.inf]))
    form = None
    if draw(st.integers(0, 3)) == 0:
        few = draw(st.sampled_from([2, 30, 70, 900]))
        form = Form(draw(st.integers(0, 99)), few, draw(st.integers(0, 6)), draw(st.sampled_from([-1, -1, 0, 2])))
    prompt = rng.integers(0, V, draw(st.sampled_from([0, 2, 30]))).tolist()
    return rows, draw(settings_), form, prompt, draw(st.sampled_from([None, 0, 3, 20])), draw(st.integers(0, 3))


def found_for(rows, wish):
    return [
        look(x, one, wish.banned, wish.temperature, wish.top)
        for x, one in zip(rows, wish.rows, strict=True)
    ]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(cases())
def test_the_same_tokens_as_from_whole_rows(case):
    rows, sampling, form, prompt, top, wrong = case
    whole = chooser(sampling, form, prompt, top)
    # Guesses that are right as far as the text goes, but the last few.
    oracle, guesses = chooser(sampling, form, prompt, top), []
    for i in range(len(rows) - 1):
        verdict = oracle.verify(rows[i : i + 1], [], 50 + i)
        guesses.append(verdict.tokens[0].id if verdict.tokens else 5)
    guesses = [g if i < len(guesses) - wrong else (g + 1) % V for i, g in enumerate(guesses)]
    few = chooser(sampling, form, prompt, top)
    with np.errstate(over="ignore", invalid="ignore"):
        for turn in range(2):  # the second time behind what the first one chose
            try:
                wish = few.wish(guesses, 50 + turn * 9)
            except StrataError:  # the grammar breaks: the host says so
                assert form.breaks >= 0
                return
            expected = whole.verify(rows, guesses, 50 + turn * 9)
            got = few.verify_found(found_for(rows, wish), guesses, 50 + turn * 9, lambda i: rows[i])
            assert (got.rows, [t.id for t in got.tokens]) == (expected.rows, [t.id for t in expected.tokens])
            assert str(got.error) == str(expected.error)
            for a, b in zip(got.tokens, expected.tokens, strict=True):
                assert a.logprob == pytest.approx(b.logprob, abs=1e-5)
                assert [i for i, _ in a.top] == [i for i, _ in b.top]
            if expected.error:
                return


@pytest.mark.parametrize(
    "more",
    [
        {}, {"top_k": 40}, {"top_p": 0.95}, {"min_p": 0.05}, {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
        {"top_p": 0.9, "typical_p": 0.9}, {"temperature": 0.0, "repetition_penalty": 1.1},
        {"top_p": 0.95, "frequency_penalty": 0.5, "presence_penalty": 0.2}, {"top_k": 20, "logit_bias": {5: 1.5}},
        {"temperature": 0.7, "repetition_penalty": 1.2, "top_p": 0.9},
    ],
    ids=str,
)  # fmt: skip
def test_text_is_decided_by_its_candidates(more):
    """Whole rows are the exception: below 3% here, of rows like those of text."""
    rng = np.random.default_rng(9)
    one = chooser(Sampling(**{"temperature": 1.0, "seed": 3} | more), None, rng.integers(0, V, 30).tolist(), None)
    for position in range(200):
        rows = row(rng, "text")[None]
        one.verify_found(found_for(rows, one.wish([], position)), [], position, lambda _: rows[0])  # noqa: B023
    assert one.fetched <= 6


def test_what_is_not_decided_is_read_whole():
    flat = np.zeros((1, V), np.float32)
    for sampling, times in ((Sampling(1.0, top_p=0.9), 1), (Sampling(1.0, typical_p=0.5), 1), (Sampling(), 0)):
        one = chooser(sampling, None, [], None)
        one.verify_found(found_for(flat, one.wish([], 0)), [], 0, lambda _: flat[0])
        assert one.fetched == times


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 9), max_size=12), st.sampled_from([-1, 1, 2, 5]), st.lists(st.integers(0, 9), max_size=6),
    st.lists(st.integers(0, 9), max_size=5), st.integers(0, 5),
)  # fmt: skip
def test_looking_ahead_leaves_the_history_as_it_was(prompt, window, said, ahead, steps):
    sampling = Sampling(repetition_penalty=1.3, frequency_penalty=0.5, presence_penalty=0.1)
    one, other = History(prompt, 10, window), History(prompt, 10, window)
    for token in said:
        one.add(token)
        other.add(token)
    with one.ahead(ahead) as tokens:
        for _ in zip(range(min(steps, len(ahead))), tokens, strict=False):
            pass
    for token in [1, 1, 2]:
        x, y = np.ones((2, 10))
        one.penalise(x, sampling)
        other.penalise(y, sampling)
        assert np.array_equal(x, y)
        ids = np.arange(10)
        assert np.array_equal(x, one.penalised(ids, np.ones(10), sampling))
        one.add(token)
        other.add(token)


@pytest.mark.parametrize("seed", range(12))
def test_what_float32_cannot_order_is_read_whole(seed):
    """A hundred tokens around the 64th within its roundings, half of them divided by a penalty."""
    rng, x = np.random.default_rng(seed), np.full(V, -5.0)
    near = rng.choice(np.arange(4, V - 1), 100, replace=False)
    said = near[:50]
    x[near] = np.where(np.isin(near, said), 11.0, 10.0) + rng.integers(-3, 4, 100) * 2.0**-20
    rows = x.astype(np.float32)[None]
    for position in range(8):
        whole, few = (chooser(Sampling(1.0, top_k=60, repetition_penalty=1.1), None, said, None) for _ in range(2))
        expected = whole.verify(rows, [], position)
        got = few.verify_found(found_for(rows, few.wish([], position)), [], position, lambda _: rows[0])
        assert [t.id for t in got.tokens] == [t.id for t in expected.tokens]
        assert few.fetched == 1


@pytest.mark.parametrize("off", [-(2.0**-17), 2.0**-17])
@pytest.mark.parametrize("more", [{"top_p": 0.5}, {}], ids=["filtered", "drawn"])
def test_a_border_within_what_a_sum_may_be_wrong_by_decides_nothing(monkeypatch, more, off):
    """Four equal tokens, and a share or a draw of exactly half."""
    for module in ("choice", "candidates", "chooser"):
        monkeypatch.setattr(f"strata.engine.{module}.uniform", lambda *_: 0.5)
    rows = np.full((1, V), -80.0, np.float32)
    rows[0, [20, 90, 100, 200]] = 3.0
    one, whole = (chooser(Sampling(1.0, **more), None, [], None) for _ in range(2))
    (found,) = found_for(rows, one.wish([], 0))
    token, logit, *shares = found.drawn
    found = replace(found, weight=found.weight * (1 + off), drawn=(token, logit, *(x + off for x in shares)))
    got = one.verify_found([found], [], 0, lambda _: rows[0])
    assert got.tokens[0].id == whole.verify(rows, [], 0).tokens[0].id
    assert one.fetched == 1
