"""Whatever a conversation goes on from, it gives what a fresh run gives: ids, log-probabilities and states."""

import random
import time
from dataclasses import replace

import pytest
import torch

from strata.engine import Drafting, FinishReason, Request, Sampling
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.network import network, prompt
from support.serving import Alone, answer, check_kept, check_sums, drain, finish, ids, run

STEP = 64
DRAFTS = Drafting(4, head=True, floor=0.0)


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


def opened(net, **kwargs) -> Scheduler:
    return Scheduler(net, Options(**({"step": STEP, "rows": 64, "reserve": 0} | kwargs)))


def request(name: str, tokens, count: int = 8, **kwargs) -> Request:
    return Request(name, tuple(tokens), max_tokens=count, **kwargs)


def wait_for_files(scheduler) -> None:
    until = time.monotonic() + 20
    while scheduler._store._folder.pending:
        assert time.monotonic() < until
        time.sleep(0.001)
    scheduler._store.trim()


def turns(first: list[int], answers: list[list[int]], news: list[list[int]]) -> list[int]:
    """A conversation so far: each answer, then what the user says next."""
    text = list(first)
    for said, new in zip(answers, news, strict=False):
        text += [*said, *new]
    return text


@pytest.mark.parametrize("tier", ["memory", "files", "restart"])
@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.3, top_k=20, seed=5)], ids=["greedy", "seeded"]
)
def test_turns_equal_fresh_ones_wherever_the_state_comes_from(tmp_path, net, alone, tier, sampling) -> None:  # K01, K07
    options = {"folder": tmp_path, "ram": 0 if tier == "files" else 1 << 30} if tier != "memory" else {}
    scheduler = opened(net, **options)
    text, read = prompt("other", 90), 0
    for turn in range(4):
        asked = request(f"turn {turn}", text, 11, sampling=sampling, drafting=DRAFTS, marks=(37,))
        events = run(scheduler, asked)[asked.id]
        assert answer(events) == alone(asked)
        end = finish(events)
        now = scheduler.stats().read_tokens
        assert end.usage.prompt_tokens == len(text)
        assert end.usage.cached_tokens == len(text) - (now - read), "what was reused is what was not read"
        if turn:
            assert end.usage.cached_tokens == len(text) - 7 - 1  # the answer's last token was in no window
        read = now
        text = [*text, *ids(events), *prompt("other", 7, seed=20 + turn)]
        if tier == "files":
            wait_for_files(scheduler)
            assert scheduler.stats().ram_bytes == 0
        elif tier == "restart":
            scheduler.close()
            scheduler, read = opened(net, **options), 0
            assert scheduler.stats().ram_bytes == 0
    assert check_kept(scheduler._store, net) >= 3
    scheduler.close()


@pytest.mark.parametrize("more", [1, 2, 3, 64, 65])
def test_a_prompt_that_is_known_but_for_a_few_tokens(net, alone, more) -> None:  # case K02
    scheduler, text = opened(net), prompt("other", 200)
    run(scheduler, request("first", text, 1))
    longer = request("longer", [*text, *prompt("other", more + 1, seed=8)[:more]])
    events = run(scheduler, longer)["longer"]
    assert answer(events) == alone(longer)
    assert finish(events).usage.cached_tokens == 200
    again = replace(longer, id="again")
    events = run(scheduler, again)["again"]
    assert answer(events) == alone(longer)
    assert finish(events).usage.cached_tokens == max(200, (199 + more) // STEP * STEP)


def test_one_beginning_and_many_questions(net, alone) -> None:  # case K04
    scheduler, chance = opened(net), random.Random(4)
    system = prompt("other", 100)
    asked = [request(f"{i}", [*system, *prompt("other", 3 + i % 5, seed=100 + i)], 4, marks=(100,)) for i in range(12)]
    order = [*asked, *asked]
    chance.shuffle(order)
    for number, one in enumerate(order):
        events = run(scheduler, replace(one, id=f"{number}"))[f"{number}"]
        assert answer(events) == alone(one)
        assert finish(events).usage.cached_tokens >= (100 if number else 0)


def test_a_growing_conversation_reads_only_what_is_new(net, alone) -> None:  # case K08
    scheduler, chance = opened(net), random.Random(8)
    text, known = prompt("other", 45), 0
    for turn in range(20):
        asked = request(f"turn {turn}", text, chance.choice([5, 9, 30]), drafting=DRAFTS)
        before = scheduler.stats().read_tokens
        events = run(scheduler, asked)[asked.id]
        read = scheduler.stats().read_tokens - before
        if turn:
            assert read <= len(text) - known + 1 <= len(text) - known + STEP
        known = len(text) + len(ids(events))
        text = [*text, *ids(events), *prompt("other", chance.randint(4, 25), seed=turn)]
        if turn in {6, 19}:
            assert answer(events) == alone(asked)
    assert scheduler.stats().checkpoints <= 16
    assert check_kept(scheduler._store, net) >= 3


def test_an_answer_that_comes_back_otherwise_costs_one_turn(net, alone) -> None:
    """Thinking that is left out of the history: the turn before is where the next one goes on from."""
    scheduler = opened(net)
    text = prompt("other", 150)
    run(scheduler, request("first", text, 12))
    other = request("second", [*text, 3, 4, 5, *prompt("other", 9, seed=2)])
    events = run(scheduler, other)["second"]
    assert answer(events) == alone(other)
    assert finish(events).usage.cached_tokens == 150


def test_three_conversations_are_all_kept(net) -> None:  # case K15
    scheduler, texts = opened(net), {name: prompt("other", 40, seed=i) for i, name in enumerate("abc")}
    for turn in range(3):
        for name, text in texts.items():
            events = run(scheduler, request(f"{name}{turn}", text, 3))[f"{name}{turn}"]
            assert (finish(events).usage.cached_tokens > 0) == (turn > 0)
            text += [*ids(events), 5, 6]


def test_the_same_tokens_with_another_picture_are_another_prompt(net) -> None:  # case K19
    scheduler, text = opened(net), prompt("other", 60)
    cached = []
    for name, salt in (("a", "one"), ("b", "two"), ("c", "one"), ("d", "")):
        events = run(scheduler, request(name, text, 2, salt=salt, marks=(50,)))[name]
        cached.append(finish(events).usage.cached_tokens)
    assert cached == [0, 0, 50, 0]


def test_what_may_not_be_kept_is_neither_kept_nor_used(net) -> None:
    scheduler, text = opened(net), prompt("other", 60)
    run(scheduler, request("a", text, 2, keep=False))
    assert scheduler.stats().ram_bytes == 0
    run(scheduler, request("b", text, 2))
    events = run(scheduler, request("c", [*text, 5], 2, keep=False))["c"]
    assert finish(events).usage.cached_tokens == 0


def test_kept_or_not_and_guessed_or_not_it_is_the_same_text(net, alone) -> None:  # case K11
    texts = {}
    for keep in (True, False):
        for drafting in (Drafting(), DRAFTS, Drafting(3)):
            scheduler, text, said = opened(net, keep=keep), prompt("other", 70), []
            for turn in range(4):
                asked = request(f"{turn}", text, 9, drafting=drafting)
                events = run(scheduler, asked)[asked.id]
                said.append(answer(events))
                text = [*text, *ids(events), 7, 8, 9]
            again = run(scheduler, request("again", prompt("other", 70), 9, drafting=drafting))["again"]
            assert answer(again) == said[0]
            texts[keep, drafting] = said
            stats = scheduler.stats()
            assert (stats.cached_tokens > 0) == (stats.ram_bytes > 0) == keep
    first = texts[False, Drafting()]
    assert all(said == first for said in texts.values())
    assert first[0] == alone(request("", prompt("other", 70), 9))


@pytest.mark.parametrize("seed", range(3))
def test_up_to_eight_at_a_time_equal_each_alone(net, alone, seed) -> None:  # cases J01, J02
    chance = random.Random(seed)
    scheduler = opened(net, keep=seed != 1)
    asked = [
        request(
            f"{i}",
            prompt("other", chance.choice([1, 3, 40, 64, 130]), seed=chance.randint(0, 3)),
            chance.randint(1, 25),
            drafting=DRAFTS,
            sampling=Sampling(temperature=chance.choice([0.0, 1.0]), seed=i),
        )
        for i in range(10)
    ]
    due = sorted((chance.randint(0, 30), i) for i in range(10))

    def before(tick: int) -> None:
        while due and (due[0][0] <= tick or scheduler.idle):
            scheduler.submit(asked[due.pop(0)[1]])

    found = drain(scheduler, before)
    assert found.keys() == {one.id for one in asked}
    for one in asked:
        assert answer(found[one.id]) == alone(one)
    check_kept(scheduler._store, net)


def test_many_conversations_in_any_order_on_little_memory(tmp_path, net, alone) -> None:  # case K10
    chance = random.Random(10)
    probe = opened(net)
    run(probe, request("probe", prompt("other", 60), 6))
    size = probe.stats().ram_bytes
    scheduler = opened(net, slots=4, ram=2 * size, folder=tmp_path, disk=6 * size)
    texts = {i: prompt("other", 20 + 5 * i, seed=i) for i in range(12)}
    running: dict[str, tuple[int, Request]] = {}
    events: dict[str, list] = {}
    cached, count = 0, 0

    def submit() -> None:
        nonlocal count
        free = [i for i in texts if i not in {who for who, _ in running.values()}]
        who = chance.choice(free)
        one = request(f"{count}", texts[who], chance.randint(1, 9), drafting=DRAFTS)
        running[one.id] = (who, one)
        scheduler.submit(one)
        count += 1

    while count < 50 or running:
        while count < 50 and len(running) < 6:
            submit()
        for name, event in scheduler.tick():
            events.setdefault(name, []).append(event)
            if not hasattr(event, "reason"):
                continue
            who, one = running.pop(name)
            assert answer(events[name]) == alone(one)
            cached += event.usage.cached_tokens
            more = [*one.prompt, *ids(events[name]), *prompt("other", 3, seed=count)]
            texts[who] = more if len(more) < 150 else prompt("other", 20, seed=1000 + count)
        check_sums(scheduler._store)
        assert scheduler.stats().ram_bytes <= 6 * size, "over the budget by what four running ones hold, and no more"
    stats = scheduler.stats()
    assert cached == stats.cached_tokens > 0
    assert stats.evicted > 0
    assert stats.refused == 0
    assert stats.read_tokens + stats.cached_tokens == stats.prompt_tokens
    wait_for_files(scheduler)
    assert scheduler.stats().disk_bytes <= 6 * size
    check_kept(scheduler._store, net)
    scheduler.close()


def stages(net, text, count):
    """How many ticks a request takes."""
    scheduler = opened(net)
    scheduler.submit(request("probe", text, count))
    ticks = 0
    while not scheduler.idle:
        scheduler.tick()
        ticks += 1
    return ticks


def test_a_request_cancelled_at_any_stage_leaves_the_next_one_right(net, alone) -> None:  # case I03
    text = prompt("other", 150)
    expected = alone(request("", text, 6))
    total = stages(net, text, 6)
    assert total == 3 + 5
    scheduler = opened(net)
    for at in range(total):
        scheduler.submit(request("gone", text, 6, drafting=Drafting()))
        found = []
        for _ in range(at):
            found += [event for _, event in scheduler.tick()]
        if scheduler.idle:
            break  # what was kept of those before makes it shorter
        assert scheduler.cancel("gone")
        found += [event for _, event in scheduler.tick()]
        assert finish(found).reason is FinishReason.CANCELLED
        assert answer(found) == expected[: len(answer(found))]
        assert scheduler.idle
        next_one = run(scheduler, request("next", text, 6))["next"]
        assert answer(next_one) == expected
        assert finish(next_one).usage.cached_tokens == (0 if at == 0 else 128)
    assert not scheduler.cancel("gone")
    check_kept(scheduler._store, net)


def test_where_forms_differ_exact_reads_what_was_generated_again(net) -> None:
    scheduler = opened(net, same_forms=False)
    text = prompt("other", 130)
    first = ids(run(scheduler, request("first", text, 20))["first"])
    longer = [*text, *first, 4, 5]
    cached = {}
    for name, exact in (("exact", True), ("exact again", True), ("going on", False)):
        events = run(scheduler, request(name, longer, 2, exact=exact, marks=(140,)))[name]
        cached[name] = finish(events).usage.cached_tokens
    # Exact: from the last whole chunk of what a fresh reading gives, never from what was generated.
    assert cached == {"exact": 128, "exact again": 128, "going on": 149}


def test_what_was_generated_and_what_was_read_never_meet_in_one_path(net) -> None:
    scheduler = opened(net, same_forms=False)
    text = prompt("other", 130)
    first = ids(run(scheduler, request("first", text, 20))["first"])
    run(scheduler, request("exact", [*text, *first, 4, 5], 2, exact=True))
    for node in scheduler._store._tree:
        symbols = node.full()
        forms = [symbol >= 0 for symbol in symbols]
        assert forms == sorted(forms, reverse=True), "nothing that was read lies behind what was generated"
    forms = {node.full()[140] >= 0 for node in scheduler._store._tree if node.end > 140}
    assert forms == {True, False}, "the same tokens are there in both forms"
