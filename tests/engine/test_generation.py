"""Generations side by side: each gets the tokens and the state it gets alone, whatever happens to the others."""

import functools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.engine import (
    Drafting,
    Finish,
    FinishReason,
    Generation,
    GenerationError,
    NotFiniteError,
    Request,
    Sampling,
    Token,
    generate,
    step,
)
from strata.engine.generation import CUT
from strata.errors import RequestError, StrataError
from strata.ops.gdn.chunked import CHUNK
from support.network import network, prompt
from support.states import differing
from support.wrapped import with_logits, wrapped

NAME = "other"
COUNT = 12


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


def request(number, **more):
    """One of eight requests, of 3 to 90 tokens, greedy or seeded."""
    sampling = Sampling() if number % 2 else Sampling(temperature=1.2, top_k=40, seed=number)
    ids = prompt(NAME, 3 + number * 12, seed=number)
    return Request(str(number), tuple(ids), sampling, **({"max_tokens": COUNT + number} | more))


@functools.cache
def alone(number):
    """Events and settled state of a request that has the network to itself."""
    with torch.inference_mode():
        net = network(NAME, drafts=True)
        state, r = net.new_state(), request(number)
        events = list(generate(net, state, r.prompt, r.sampling, max_tokens=r.max_tokens))
        net.settle(state)
        return events, state


def begin(net, r, **more):
    return Generation(net, net.new_state(), r, **more)


def run(net, generation):
    """All its events, from here on."""
    events = []
    while not generation.finished:
        events += generation.read() if generation.reading else step(net, [generation])[0]
    return events


@settings(deadline=None, max_examples=12)
@given(data=st.data(), drafts=st.booleans())
def test_any_interleaving_gives_each_its_own_text_and_state(data, drafts):
    """Proof of issue 3: 1-8 conversations decoded together, in any order, joining and leaving (cases J02, L01)."""
    with torch.inference_mode():
        net = network(NAME, drafts=True)
        numbers = data.draw(st.lists(st.integers(0, 7), min_size=1, max_size=8, unique=True))
        drafting = Drafting(5, head=True, floor=0.0) if drafts else Drafting()
        running = {n: begin(net, request(n, drafting=drafting)) for n in numbers}
        events = {n: [] for n in numbers}
        while going := [n for n in numbers if not running[n].finished]:
            reading = [n for n in going if running[n].reading]
            ready = [n for n in going if not running[n].reading]
            if reading and (not ready or data.draw(st.booleans())):
                chosen = data.draw(st.sampled_from(reading))
                events[chosen] += running[chosen].read(data.draw(st.sampled_from([1, 64, 512])))
            else:
                chosen = data.draw(st.permutations(ready))[: data.draw(st.integers(1, len(ready)))]
                for n, new in zip(chosen, step(net, [running[n] for n in chosen]), strict=True):
                    events[n] += new
        for n in numbers:
            expected, state = alone(n)
            assert events[n] == expected
            net.settle(running[n].state)
            assert differing(running[n].state, state) == []


def test_a_prompt_is_cut_at_multiples_of_64_and_at_marks():
    assert CUT == CHUNK
    net = network(NAME)
    ids = tuple(prompt(NAME, 300))
    ends = {}
    for rows in (None, 1, 64, 100, 128, 512):
        generation = begin(net, Request("", ids, max_tokens=1, marks=(0, 7, 130, 300)))
        found = []
        while generation.reading:
            assert generation.tokens == 0
            generation.read(rows)
            found.append(generation.read_tokens)
        assert [type(e) for e in generation.ended] == [Finish]
        ends[rows] = found
    assert ends == {
        None: [7, 130, 300],
        1: [7, 64, 128, 130, 192, 256, 300],
        64: [7, 64, 128, 130, 192, 256, 300],
        100: [7, 64, 128, 130, 192, 256, 300],
        128: [7, 128, 130, 256, 300],
        512: [7, 130, 300],
    }


@pytest.mark.parametrize("first", [1, 50, 63, 74])
def test_a_prompt_whose_start_was_read_before(first):
    """The state of a conversation goes on; the rest is read, and tokens and state are those of the whole prompt."""
    net, r = network(NAME, drafts=True), request(6)
    state = net.new_state()
    net.read(state, list(r.prompt[:first]))
    generation = Generation(net, state, r, first)
    assert generation.reading == len(r.prompt) - first
    events = run(net, generation)
    expected, after = alone(6)
    assert events == expected
    assert events[-1].usage.cached_tokens == first
    net.settle(state)
    assert differing(state, after) == []


def test_cancelling_at_every_stage():
    net, r = network(NAME), request(7)
    unread = begin(net, r)
    assert unread.cancel() == [Finish(FinishReason.CANCELLED, 0)]
    half = begin(net, r)
    half.read(64)
    assert half.cancel() == [Finish(FinishReason.CANCELLED, 0)]
    whole = net.new_state()
    net.read(whole, list(r.prompt[:64]))
    assert differing(half.state, whole) == [], "what was read of it is whole, and may be kept"
    written = begin(net, r)
    events = []
    while written.tokens < 4:
        events += written.read() if written.reading else step(net, [written])[0]
    events += written.cancel()
    assert events == [*alone(7)[0][:4], Finish(FinishReason.CANCELLED, 4)]
    for generation in (unread, half, written):
        assert generation.cancel() == []
        assert generation.read() == []
        assert step(net, [generation]) == [[]]


def test_a_request_ends_when_its_time_is_up():
    net, now = network(NAME), [100.0]
    late, other = request(4, timeout=5.0), request(1)
    generation = begin(net, late, submitted=99.0, clock=lambda: now[0])
    assert generation.read() == alone(4)[0][:1]
    beside = begin(net, other)
    events = beside.read()
    for _ in range(3):
        mine, theirs = step(net, [generation, beside])
        assert len(mine) == 1
        events += theirs
    now[0] = 104.0
    mine, theirs = step(net, [generation, beside])
    assert mine == [Finish(FinishReason.TIMEOUT, 4)]
    assert [*events, *theirs, *run(net, beside)] == alone(1)[0]
    in_time = begin(net, late, submitted=99.5, clock=lambda: now[0])
    assert in_time.read(64) == alone(4)[0][:1], "4.5 of 5 seconds"
    unread = begin(net, late, submitted=99.0, clock=lambda: now[0])
    assert unread.read() == [Finish(FinishReason.TIMEOUT, 0)]
    assert unread.reading == len(late.prompt)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("number", [2, 3], ids=["seeded", "greedy"])
@pytest.mark.parametrize("drafting", [Drafting(), Drafting(4, head=True, floor=0.0)], ids=["plain", "drafts"])
def test_numbers_that_are_not_finite_end_the_answer_there(value, number, drafting):
    """Case P02: the tenth token's logits are spoilt. Ten tokens come, then the error, and the state holds numbers."""
    clean = network(NAME, drafts=True)
    r = request(number, drafting=drafting)
    expected, _ = alone(number)
    # the row that follows ten tokens, wherever it lies in a window, is known by its numbers
    state = clean.new_state()
    clean.read(state, list(r.prompt))
    for token in expected[:10]:
        done = clean.window([(state, [token.id])])[0]
        clean.commit(state, done, 1)
    row = clean.logits(done.residual)[0]

    def spoil(logits):
        logits = logits.clone()
        logits[(logits == row).all(1), 5] = value
        return logits

    net = with_logits(clean, spoil)
    generation = begin(net, r)
    events = run(net, generation)
    assert events[:-1] == expected[:10]
    assert events[-1] == Finish(FinishReason.ERROR, 10)
    assert isinstance(events[-1].error, NotFiniteError)
    assert all(tensor.isfinite().all() for _, tensor in generation.state.tensors())
    assert generation.state.length == len(r.prompt) + 9


def test_a_row_without_numbers_leaves_the_rows_beside_it_alone():
    """Case P02: a whole row of one conversation is NaN from the middle of the network on."""
    clean, calls = network(NAME), [0]

    def hc_write(real, residual, out, inject):
        got = real(residual, out, inject)
        calls[0] += len(got) == 3
        if len(got) == 3 and calls[0] == 20:  # the third window; four layers write twice
            got = got.clone()
            got[1] = float("nan")
        return got

    net = wrapped(clean, hc_write=hc_write)
    running = [begin(net, request(n)) for n in (5, 3, 6)]
    events = [list(g.read()) for g in running]
    while not all(g.finished for g in running):
        for found, new in zip(events, step(net, running), strict=True):
            found.extend(new)
    assert events[0] == alone(5)[0]
    assert events[2] == alone(6)[0]
    assert events[1] == [*alone(3)[0][:3], Finish(FinishReason.ERROR, 3)]
    assert differing(running[0].state, trunk(5)) == []
    assert all(tensor.isfinite().all() for _, tensor in running[1].state.tensors())


def trunk(number):
    """The state after a request alone, without the draft head's part."""
    state = alone(number)[1].clone()
    state.mtp = None
    return state


class Broken:
    """A constraint that allows everything and breaks after some tokens."""

    finished = False

    def __init__(self, tokens, error):
        self._left = tokens
        self._error = error

    def allowed(self):
        return None

    def advance(self, token):  # noqa: ARG002  # the signature of a constraint
        self._left -= 1
        if not self._left:
            raise self._error

    def forced(self):
        return []

    def fork(self):
        return Broken(self._left, self._error)


@pytest.mark.parametrize("error", [StrataError("the grammar is lost"), ZeroDivisionError("a bug")], ids=repr)
@pytest.mark.parametrize("at", [1, 5])
def test_an_error_of_one_answer_ends_that_one_alone(error, at):
    net = network(NAME)
    bad = begin(net, request(2, constraint=Broken(at, error), stop_ids=frozenset({511})))
    good = begin(net, request(5))
    events, others = bad.read(), good.read()
    while not bad.finished:
        new, more = step(net, [bad, good])
        events += new
        others += more
    assert [type(e) for e in events] == [*[Token] * bad.tokens, Finish]
    assert events[-1].reason is FinishReason.ERROR
    assert isinstance(events[-1].error, StrataError)
    if isinstance(error, StrataError):
        assert events[-1].error is error
    else:
        assert isinstance(events[-1].error, GenerationError)
        assert events[-1].error.__cause__ is error
        assert "ZeroDivisionError: a bug" in str(events[-1].error)
    assert [*others, *run(net, good)] == alone(5)[0]
    with pytest.raises(StrataError):
        list(generate(net, net.new_state(), [1, 2], Sampling(), stop_ids=[511], constraint=Broken(1, error)))


def test_a_drafter_that_breaks_ends_its_answer():
    class Wild:
        def __init__(self, ids):
            self.ids = ids

        def guess(self, state, tokens, most):  # noqa: ARG002  # the signature of a drafter
            if self.ids is None:
                raise LookupError("lost")
            return self.ids, "wild"

        def learn(self, guesses, accepted, seconds):
            pass

    net = network(NAME)
    for ids, words in ((None, "LookupError: lost"), ((512,), "outside the vocabulary"), ((-1,), "outside")):
        generation = begin(net, request(1), drafter=Wild(ids))
        assert run(net, generation)[-1].reason is FinishReason.ERROR
        assert words in str(generation.finished.error)
    too_many = begin(net, request(1), drafter=Wild((1,) * 50))
    assert run(net, too_many) == alone(1)[0]


def test_an_error_of_the_device_leaves_every_state_as_it_was():
    """The window can be computed again, as if nothing had happened."""
    clean, failing = network(NAME, drafts=True), [False]

    def experts(real, *args):
        if failing[0]:
            raise RuntimeError("the device is gone")
        return real(*args)

    net = wrapped(clean, experts=experts)
    running = [begin(net, request(n)) for n in (1, 4)]
    events = [list(g.read()) for g in running]
    for _ in range(4):
        for found, new in zip(events, step(net, running), strict=True):
            found.extend(new)
    before = [g.state.clone() for g in running]
    failing[0] = True
    with pytest.raises(RuntimeError, match="device is gone"):
        step(net, running)
    failing[0] = False
    for generation, state in zip(running, before, strict=True):
        assert differing(generation.state, state) == []
    while not all(g.finished for g in running):
        for found, new in zip(events, step(net, running), strict=True):
            found.extend(new)
    assert events == [alone(1)[0], alone(4)[0]]


@pytest.mark.parametrize("room", [5, 1])
@pytest.mark.parametrize("extra", [0, 1, None])
@pytest.mark.parametrize("drafting", [Drafting(), Drafting(7), Drafting(7, head=True, floor=0.0)], ids=str)
def test_the_edge_of_the_context_with_drafts(room, extra, drafting):
    """Case O03: exactly as many tokens as there is room for, then length; drafts do not reach beyond."""
    net = network(NAME, drafts=True)
    ids = tuple(prompt(NAME, 60))
    net = replace(net, config=replace(net.config, context=60 + room))
    r = Request("", ids, max_tokens=None if extra is None else room + extra, drafting=drafting)
    generation = begin(net, r)
    events = run(net, generation)
    assert len(events) == room + 1
    assert events[-1] == Finish(FinishReason.LENGTH, room)
    assert generation.state.length == 60 + room - 1
    with pytest.raises(RequestError, match=f"60 tokens, but the context holds {60}"):
        Generation(replace(net, config=replace(net.config, context=60)), net.new_state(), r)


def test_ten_runs_count_the_same_drafts():
    """Case L08: the same drafts offered and accepted, and the same log-probabilities, every time."""
    net = network(NAME, drafts=True)
    seen = []
    for _ in range(10):
        drafting = Drafting(3, head=True, floor=0.004)  # the tiny head is sure of little
        generation = begin(net, Request("", tuple(prompt(NAME, 40)), max_tokens=16, drafting=drafting))
        events = run(net, generation)
        seen.append((events, events[-1].usage))
    assert seen.count(seen[0]) == 10
    assert 0 < seen[0][1].drafted["head"] < 45, "the floor cuts some chains and not all"


def test_requests_that_make_no_sense_are_refused():
    net = network(NAME)
    state = net.new_state()
    for wrong, words in (
        ({"prompt": ()}, "prompt is empty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"marks": (3,)}, "mark 3 is outside"),
    ):
        with pytest.raises(RequestError, match=words):
            Request(**({"id": "", "prompt": (1, 2)} | wrong))
    for r, first, words in (
        (Request("", (1, 512)), 0, "token id 512 is outside"),
        (Request("", (1, 2)), 2, "at least one must be left"),
        (Request("", (1, 2)), 1, "holds 0 tokens, not the 1"),
        (Request("", (1, 2), drafting=Drafting(3, head=True)), 0, "without drafts"),
        (Request("", (1, 2), logprobs=21), 0, "logprobs"),
    ):
        with pytest.raises(RequestError, match=words):
            Generation(net, state, r, first)
    reading = begin(net, request(3))
    with pytest.raises(RequestError, match="has not read its prompt"):
        step(net, [reading])
    with pytest.raises(RequestError, match="1 to 8 generations, not 9"):
        step(net, [reading] * 9)
    with pytest.raises(RequestError, match="1 to 8 generations, not 0"):
        step(net, [])
    assert np.prod([state.length, reading.state.length]) == 0


def test_a_drafter_learns_from_windows_of_its_own_only():
    class Watching:
        learned = 0

        def guess(self, state, tokens, most):  # noqa: ARG002  # the signature of a drafter
            return (), ""

        def learn(self, guesses, accepted, seconds):  # noqa: ARG002
            self.learned += 1

    net, drafter = network(NAME), Watching()
    mine, other = begin(net, request(1), drafter=drafter), begin(net, request(2))
    mine.read()
    other.read()
    step(net, [mine])
    step(net, [mine, other])
    step(net, [mine])
    assert drafter.learned == 2
