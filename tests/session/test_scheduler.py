"""Turns, bounds, ends and errors: what is computed when, and that one request never touches another."""

import random

import pytest
import torch

from strata.engine import (
    Drafting,
    FinishReason,
    Generation,
    GenerationError,
    NotFiniteError,
    Request,
    Sampling,
    Token,
    Trace,
    step,
)
from strata.errors import QueueFullError, RequestError
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.network import network, prompt
from support.serving import Alone, answer, check_kept, drain, finish, ids, run


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def net():
    return network("other", drafts=True)


@pytest.fixture(scope="module")
def alone(net):
    return Alone(net)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def opened(net, clock=None, **kwargs) -> Scheduler:
    options = Options(**({"step": 64, "rows": 64} | kwargs))
    return Scheduler(net, options, clock=clock or Clock())


def request(name: str, tokens, count: int = 6, **kwargs) -> Request:
    return Request(name, tuple(tokens), max_tokens=count, **kwargs)


def names(happened) -> list[str]:
    return [name for name, _ in happened]


def test_a_short_request_is_not_stuck_behind_a_long_prompt(net, alone) -> None:  # case J04
    scheduler = opened(net, slots=2)
    long = request("long", prompt("other", 12 * 64))
    short = request("short", prompt("other", 10, seed=7), 3)
    scheduler.submit(long)
    events = {"long": [], "short": []}
    for _ in range(2):
        assert scheduler.tick() == []
    scheduler.submit(short)
    first = scheduler.tick()
    assert names(first) == ["short"], "its first token comes with the next pass"
    for name, event in [*first, *(pair for _ in range(100) for pair in scheduler.tick())]:
        events[name].append(event)
    assert scheduler.idle
    assert answer(events["short"]) == alone(short)
    assert answer(events["long"]) == alone(long)


def test_passes_are_shorter_while_others_are_answered_and_windows_get_their_share(net, alone, monkeypatch) -> None:
    """A pass takes 1 ms a token and a window 50 ms; others wait for 0.4 s."""
    clock, read, lengths = Clock(), Generation.read, []

    def taking(generation, rows=None, **kwargs):
        before = generation.reading
        events = read(generation, rows, **kwargs)
        lengths.append(before - generation.reading)
        clock.now += 0.001 * lengths[-1]
        return events

    def window(network, generations, **kwargs):
        clock.now += 0.05
        kinds.append("w")
        return step(network, generations, **kwargs)

    monkeypatch.setattr(Generation, "read", taking)
    monkeypatch.setattr("strata.session.scheduler.step", window)
    kinds: list[str] = []
    scheduler = opened(net, clock, rows=512, step=512, wait=0.3, keep=False)
    long = request("long", prompt("other", 900), 2)
    talks = request("talks", prompt("other", 20, seed=5), 12)
    events = {"long": [], "talks": []}
    scheduler.submit(long)
    scheduler.tick()
    scheduler.submit(talks)
    while not scheduler.idle:
        before = len(lengths)
        for name, event in scheduler.tick():
            events[name].append(event)
        kinds += "p" * (len(lengths) - before)
    assert lengths == [512, 20, 256, 132], "as long as others may wait"
    assert "".join(kinds).startswith("pwpwwp"), "a quarter of 0.256 s is two windows of 50 ms"
    assert answer(events["long"]) == alone(long)
    assert answer(events["talks"]) == alone(talks)


def test_a_first_token_does_not_wait_until_its_prompt_is_kept(net, tmp_path) -> None:
    text = prompt("other", 100)
    scheduler = opened(net)
    scheduler.submit(request("a", text))
    kept = []
    while not scheduler.idle:
        happened = names(scheduler.tick())
        kept.append((len(happened), scheduler.stats().checkpoints))
    # A pass up to 64, one that ends with the first token; then five windows, of which the first keeps the prompt's end.
    assert kept == [(0, 1), (1, 1), *[(1, 2)] * 4, (2, 3)]

    for folder in (None, tmp_path):  # whoever closes in between loses nothing
        scheduler = opened(net, folder=folder, reserve=0)
        scheduler.submit(request("a", text))
        while not scheduler.tick():
            assert not scheduler.idle
        scheduler.close()
    scheduler = opened(net, folder=tmp_path, reserve=0)
    scheduler.submit(request("b", [*text, 4]))
    scheduler.tick()
    assert scheduler.stats().cached_tokens == len(text)
    scheduler.close()


def test_answers_go_on_while_a_prompt_is_read(net) -> None:
    trace = Trace()
    scheduler = Scheduler(net, Options(rows=64), trace=trace)
    scheduler.submit(request("talks", prompt("other", 5), 8))
    scheduler.tick()
    scheduler.submit(request("reads", prompt("other", 5 * 64, seed=3), 2))
    drain(scheduler)
    kinds = "".join("p" if record.read_us else "w" for record in trace.records)
    assert kinds.startswith("pwpwpwpwpwp"), kinds
    both = [record.conversations for record in trace.records if not record.read_us]
    assert max(both) == 2


def test_one_alone_keeps_its_drafts_and_two_share_a_window(net) -> None:
    text = prompt("other", 20) * 4
    draft = Drafting(4, head=True, floor=0.0)
    found = run(opened(net), request("one", text, 30, drafting=draft))
    assert sum(finish(found["one"]).usage.drafted.values()) > 0
    trace = Trace()
    scheduler = Scheduler(net, Options(), trace=trace)
    found = run(scheduler, *(request(f"{i}", text, 10, drafting=draft) for i in range(8)))
    assert max(record.conversations for record in trace.records) == 8
    assert len({tuple(answer(events)) for events in found.values()}) == 1


def test_as_many_as_may_wait_wait_and_the_others_are_refused(net, alone) -> None:  # case J07
    scheduler = opened(net, slots=2, queue=3)
    taken = []
    for i in range(40):
        try:
            scheduler.submit(request(f"{i}", prompt("other", 6, seed=i % 3), 3))
            taken.append(i)
        except QueueFullError as error:
            assert "2 requests run and 3 wait, of at most 3" in str(error)  # noqa: PT017
    assert taken == [0, 1, 2, 3, 4]
    scheduler.tick()
    stats = scheduler.stats()
    assert (stats.reading + stats.decoding, stats.queued) == (1, 4)
    scheduler.cancel("4")
    scheduler.tick()
    scheduler.submit(request("later", prompt("other", 6), 3))
    found = drain(scheduler)
    assert found.keys() == {"0", "1", "2", "3", "later"}
    assert answer(found["later"]) == alone(request("", prompt("other", 6), 3))
    assert scheduler.stats().finished == 6


def test_time_runs_out_in_every_stage(net) -> None:
    clock = Clock()
    scheduler = opened(net, clock, slots=2)
    text = prompt("other", 200)
    for name, seconds in (("decodes", 30.0), ("reads", 20.0), ("waits", 10.0)):
        scheduler.submit(request(name, text if name == "reads" else text[:5], 50, timeout=seconds))
    found: dict[str, list] = {}

    def tick() -> None:
        for name, event in scheduler.tick():
            found.setdefault(name, []).append(event)

    tick()  # both short ones are begun before the long one
    tick()
    clock.now = 10.0
    tick()
    assert finish(found["waits"]).reason is FinishReason.TIMEOUT
    tick()
    tick()
    clock.now = 20.0
    tick()
    assert finish(found["reads"]).reason is FinishReason.TIMEOUT
    assert finish(found["reads"]).tokens == 0
    assert finish(found["reads"]).usage.prompt_tokens == 200
    clock.now = 30.0
    tick()
    end = finish(found["decodes"])
    assert end.reason is FinishReason.TIMEOUT
    assert end.tokens == len(answer(found["decodes"])) > 0
    assert scheduler.idle


def test_a_request_that_cannot_be_answered_is_refused_at_once(net) -> None:
    scheduler = opened(net)
    for bad, message in (
        (request("a", [1] * 2000), "the context holds 1024"),
        (request("a", [1, 512]), "outside the vocabulary of 512"),
        (request("a", [1], priority=1000), "priority must be"),
    ):
        with pytest.raises(RequestError, match=message):
            scheduler.submit(bad)
    assert scheduler.idle
    scheduler.submit(request("a", [1]))
    with pytest.raises(RequestError, match="'a' is not finished yet"):
        scheduler.submit(request("a", [1]))


def hit(monkeypatch, where: str) -> None:
    """Raise once in the middle of a request's work."""
    calls = iter(range(100))

    def raising(real, *at):
        def call(*arguments, **kwargs):
            if next(calls) in at:
                raise ZeroDivisionError("hook")
            return real(*arguments, **kwargs)

        return call

    from strata.engine.chooser import Chooser
    from strata.engine.drafting.drafter import Guesser
    from strata.model import Network
    from strata.session.store import Store

    target, name, at = {
        "prefill": (Network, "read", 1),
        "window": (Network, "window", 1),
        "draft": (Guesser, "guess", 1),
        "verify": (Chooser, "verify", 2),
        "keep": (Store, "keep", 0),
        "restore": (Store, "restore", 0),
        "settle": (Network, "settle", 3),
    }[where]
    monkeypatch.setattr(target, name, raising(getattr(target, name), at))


@pytest.mark.parametrize("where", ["prefill", "window", "draft", "verify", "keep", "restore", "settle"])
def test_an_error_nobody_thought_of_costs_one_request(net, alone, monkeypatch, where) -> None:  # case J08
    text = prompt("other", 100)
    drafting = Drafting(3, head=True, floor=0.0)
    expected = [alone(request("", [*text, i], 8)) for i in range(3)]
    scheduler = opened(net)
    with monkeypatch.context() as patch:
        hit(patch, where)
        found = run(scheduler, request("hit", text, 8, drafting=drafting))["hit"]
    end = finish(found)
    if where in {"keep", "settle", "restore"}:
        assert end.reason is FinishReason.LENGTH, "what is kept is for later"
    else:
        assert end.reason is FinishReason.ERROR
        assert isinstance(end.error, GenerationError)
        assert "ZeroDivisionError" in str(end.error)
        assert scheduler.stats().failed == 1
        assert scheduler.stats().checkpoints == 0, "nothing of it is kept"
    for i in range(3):
        assert answer(run(scheduler, request(f"{i}", [*text, i], 8))[f"{i}"]) == expected[i]
    check_kept(scheduler._store, net)


def test_an_error_in_one_of_several_leaves_the_others(net, alone, monkeypatch) -> None:
    texts = [prompt("other", 30, seed=i) for i in range(4)]
    scheduler = opened(net)
    from strata.engine.chooser import Chooser

    real, victims = Chooser.verify, []

    def verify(self, logits, guesses, first):
        if first == len(texts[2]) + 2 and len(victims) == 0:
            victims.append(self)
            raise ZeroDivisionError("hook")
        return real(self, logits, guesses, first)

    monkeypatch.setattr(Chooser, "verify", verify)
    found = run(scheduler, *(request(f"{i}", text, 7) for i, text in enumerate(texts)))
    failed = [name for name in found if finish(found[name]).reason is FinishReason.ERROR]
    assert len(failed) == 1
    monkeypatch.undo()
    for i, text in enumerate(texts):
        if f"{i}" not in failed:
            assert answer(found[f"{i}"]) == alone(request("", text, 7))
    check_kept(scheduler._store, net)


@pytest.mark.parametrize("when", [1, 4])
def test_numbers_that_are_not_finite_end_the_request_and_are_not_kept(
    net, alone, monkeypatch, when
) -> None:  # case P02
    from strata.model import Network

    text, calls, real = prompt("other", 150), iter(range(1, 100)), Network.logits

    def logits(self, residual):
        out = real(self, residual)
        return out * float("nan") if next(calls) == when else out

    scheduler = opened(net)
    with monkeypatch.context() as patch:
        patch.setattr(Network, "logits", logits)
        found = run(scheduler, request("bad", text, 8))["bad"]
    assert finish(found).reason is FinishReason.ERROR
    assert isinstance(finish(found).error, NotFiniteError)
    assert scheduler.stats().checkpoints == 0
    assert scheduler.stats().ram_bytes == 0
    again = run(scheduler, request("again", text, 8))["again"]
    assert answer(again) == alone(request("", text, 8))
    assert finish(again).usage.cached_tokens == 0


def test_what_others_kept_survives_an_error_behind_it(net, monkeypatch) -> None:
    scheduler, text = opened(net), prompt("other", 100)
    run(scheduler, request("good", text, 4))
    with monkeypatch.context() as patch:
        hit(patch, "verify")
        found = run(scheduler, request("bad", [*text, *prompt("other", 70, seed=5)], 4))["bad"]
    assert finish(found).reason is FinishReason.ERROR
    known = {
        name: finish(run(scheduler, request(name, more, 1))[name]).usage.cached_tokens
        for name, more in (("behind it", [*text, 5]), ("the same", [*text, *prompt("other", 70, seed=5)]))
    }
    assert known == {"behind it": 100, "the same": 100}, "what was good stays, what it computed is gone"


def test_a_stop_token_ends_and_what_is_kept_goes_on(net, alone) -> None:
    scheduler, text = opened(net), prompt("other", 40)
    plain = ids(run(scheduler, request("probe", text, 12, keep=False))["probe"])
    stop = frozenset({plain[5]})
    asked = request("stops", text, 12, stop_ids=stop)
    found = run(scheduler, asked)["stops"]
    assert finish(found).stop_id == plain[5]
    assert answer(found) == alone(asked)
    said = ids(found)
    asked = request("next", [*text, *said, plain[5], 3, 4], 5)
    found = run(scheduler, asked)["next"]
    assert answer(found) == alone(asked)
    assert finish(found).usage.cached_tokens == 40 + len(said)
    check_kept(scheduler._store, net)


def test_cancelling_at_random_leaves_everybody_else_right(net, alone) -> None:
    chance, scheduler = random.Random(6), opened(net, slots=3, queue=50)
    texts = {f"{i}": prompt("other", chance.choice([5, 70, 140]), seed=i % 4) for i in range(20)}
    for name, text in texts.items():
        scheduler.submit(
            request(name, text, chance.randint(1, 9), sampling=Sampling(1.0, seed=3)), client=chance.choice("ab")
        )
    asked = {name: conversation.request for name, conversation in scheduler._all.items()}
    gone = set()

    def before(_: int) -> None:
        if chance.random() < 0.25 and not scheduler.idle:
            name = chance.choice(sorted(scheduler._all))
            scheduler.cancel(name)
            gone.add(name)

    found = drain(scheduler, before)
    assert found.keys() == texts.keys()
    for name, events in found.items():
        expected = alone(asked[name])
        if finish(events).reason is FinishReason.CANCELLED:
            assert name in gone
            assert answer(events) == expected[: len(answer(events))]
        else:
            assert answer(events) == expected
    assert {name for name in texts if finish(found[name]).reason is FinishReason.CANCELLED}
    check_kept(scheduler._store, net)
    stats = scheduler.stats()
    assert (stats.queued, stats.reading, stats.decoding) == (0, 0, 0)
    assert stats.finished == 20
    assert stats.generated_tokens == sum(isinstance(event, Token) for events in found.values() for event in events)


def test_progress_is_seen_between_passes(net) -> None:
    scheduler, text, seen = opened(net), prompt("other", 150), []
    run(scheduler, request("before", text[:70], 1))
    scheduler.submit(request("a", text, 2))
    while not scheduler.idle:
        scheduler.tick()
        seen.append([(read.id, read.read, read.total, read.cached) for read in scheduler.progress()])
    assert seen == [[("a", 128, 150, 70)], [("a", 150, 150, 70)], []]


def test_an_unknown_request_cannot_be_cancelled(net) -> None:
    assert not opened(net).cancel("nobody")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slots": 9}, "from 1 to 8"),
        ({"slots": 0}, "from 1 to 8"),
        ({"step": 0}, "at least 1 token"),
        ({"rows": 100}, "multiple of 64"),
        ({"rows": 0}, "multiple of 64"),
        ({"ram": -1}, "ram must be at least 0"),
        ({"queue": -1}, "queue must be at least 0"),
    ],
    ids=str,
)
def test_options_out_of_range_are_refused(values, message) -> None:
    with pytest.raises(RequestError, match=message):
        Options(**values)


def test_two_engines_do_not_share_a_folder(net, tmp_path) -> None:
    from strata.errors import StrataError

    first = opened(net, folder=tmp_path, reserve=0)
    with pytest.raises(StrataError, match="another process"):
        opened(net, folder=tmp_path, reserve=0)
    first.close()
    opened(net, folder=tmp_path, reserve=0).close()
