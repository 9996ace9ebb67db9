"""The queue: bounded, fair, and nobody starves; as a state machine against a dictionary."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strata.errors import QueueFullError, RequestError
from strata.session.queue import Queue, Stage

SLOTS, BOUND = 3, 4


class Machine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue(slots=SLOTS, bound=BOUND, aging=5.0)
        self.known: dict[str, dict] = {}
        self.now = 0.0
        self.reached, self.latest = 0, {}
        self.names = iter(map(str, range(10**6)))

    @rule(seconds=st.sampled_from([0.5, 3.0, 12.0]))
    def wait(self, seconds) -> None:
        self.now += seconds

    @rule(
        work=st.integers(1, 2000),
        client=st.sampled_from(["", "a", "b"]),
        priority=st.integers(-2, 2),
        timeout=st.sampled_from([None, 4.0]),
    )
    def add(self, work, client, priority, timeout) -> None:
        name = next(self.names)
        values = {"work": work, "client": client, "priority": priority, "timeout": timeout}
        if len(self.known) == SLOTS + BOUND:
            with pytest.raises(QueueFullError, match=f"{SLOTS} requests run and {BOUND} wait"):
                self.queue.add(name, self.now, **values)
            assert name not in self.queue
            return
        self.queue.add(name, self.now, **values)
        turn = max(self.reached, self.latest.get(client, -1) + 1) if client else self.reached
        self.latest[client] = turn
        end = self.now + (timeout or math.inf)
        self.known[name] = {**values, "served": self.now, "stage": "queued", "end": end, "turn": turn}

    @rule(rows=st.integers(1, 600))
    def step(self, rows) -> None:
        chosen = self.queue.choose(self.now)
        running = sum(entry["stage"] != "queued" for entry in self.known.values())
        able = [
            name
            for name, entry in self.known.items()
            if entry["stage"] == "reading" or (entry["stage"] == "queued" and running < SLOTS)
        ]
        if not able:
            assert chosen is None
            return
        order = list(self.known)

        def rank(name: str) -> tuple:
            entry = self.known[name]
            age = math.floor((self.now - entry["served"]) / 5.0)
            ahead = max(0, entry["turn"] - self.reached)
            return (-(entry["priority"] + age), ahead, entry["work"], order.index(name))

        assert chosen.id == min(able, key=rank)
        entry = self.known[chosen.id]
        entry["work"], entry["served"] = max(0, entry["work"] - rows), self.now
        self.reached = max(self.reached, entry["turn"])
        entry["stage"] = "reading" if entry["work"] else "decoding"
        self.queue.served(chosen.id, self.now, entry["work"])

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def finish(self, data) -> None:
        self.leave(data.draw(st.sampled_from(sorted(self.known))))

    def leave(self, name) -> None:
        self.queue.remove(name)
        client = self.known.pop(name)["client"]
        if not any(entry["client"] == client for entry in self.known.values()):
            self.latest.pop(client, None)

    @rule()
    def expire(self) -> None:
        late = self.queue.expired(self.now)
        assert late == [name for name, entry in self.known.items() if self.now >= entry["end"]]
        for name in late:
            self.leave(name)

    @invariant()
    def the_stages_agree(self) -> None:
        assert {e.id: e.stage.name.lower() for e in self.queue} == {n: e["stage"] for n, e in self.known.items()}
        assert self.queue.count(Stage.READING) + self.queue.count(Stage.DECODING) <= SLOTS


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueue = Machine.TestCase


def reads(queue: Queue, now: float, rows: int = 512) -> str:
    """One pass for whoever is chosen; one that is read to its end is finished at once."""
    entry = queue.choose(now)
    left = max(0, entry.work - rows)
    queue.served(entry.id, now, left)
    if not left:
        queue.remove(entry.id)
    return entry.id


def test_a_short_prompt_does_not_wait_behind_a_long_one() -> None:  # case J04
    queue = Queue(slots=2, bound=8)
    queue.add("long", 0.0, work=40 * 512)
    assert [reads(queue, 0.1 * i) for i in range(3)] == ["long"] * 3
    queue.add("short", 0.3, work=10)
    assert reads(queue, 0.4) == "short"
    assert reads(queue, 0.5) == "long"


def test_age_counts_from_the_last_pass_and_buys_one() -> None:
    queue = Queue(slots=2, bound=8, aging=2.0)
    queue.add("long", 0.0, work=40 * 512)
    assert {reads(queue, float(second)) for second in range(10)} == {"long"}
    for i in range(9):
        queue.add(f"short {i}", 10.0, work=1)
    order = [reads(queue, 10.1 + i / 2) for i in range(9)]
    assert order[0] == "short 0", "that the long one has been there for ten seconds counts for nothing"
    assert 1 <= order.count("long") <= 2, "one pass for every two seconds without"


@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 3), st.floats(0.05, 1.0))
@settings(deadline=None)
def test_a_long_prompt_is_read_however_many_short_ones_come(passes, burst, priority, seconds) -> None:
    queue = Queue(slots=8, bound=50, aging=2.0)
    queue.add("long", 0.0, work=passes * 512)
    now, count, mine = 0.0, 0, 0
    # Between two of its passes it waits for its age to reach the others' level, and for those as old as it is.
    longest = (passes + 1) * (2.0 * (priority + 2) + (burst + 1) * seconds)
    while mine < passes:
        while len(queue) < burst + 1:
            queue.add(f"short {count}", now, work=10, priority=priority)
            count += 1
        mine += reads(queue, now) == "long"
        now += seconds
        assert now < longest


def test_clients_take_turns_however_many_requests_each_has() -> None:
    queue = Queue(slots=1, bound=50)
    for i in range(10):
        queue.add(f"many {i}", 0.0, work=10, client="many")
    queue.add("one", 0.0, work=400, client="one")  # came last and is the longest
    order = [reads(queue, 0.0) for _ in range(11)]
    assert order.index("one") <= 1, order


def test_nothing_stays_of_clients_that_left() -> None:  # case N06
    queue = Queue(slots=1, bound=5)
    for i in range(1000):
        queue.add(f"{i}", 0.0, work=10, client=f"client {i}")
        assert reads(queue, 0.0) == f"{i}"
    assert not queue._turns


def test_priority_goes_first() -> None:
    queue = Queue(slots=1, bound=50)
    queue.add("low", 0.0, work=1, priority=-1)
    queue.add("plain", 0.0, work=1)
    queue.add("high", 0.0, work=9000, priority=1)
    assert queue.choose(0.1).id == "high"


def test_only_free_slots_take_queued_requests() -> None:
    queue = Queue(slots=2, bound=2)
    for name in "abc":
        queue.add(name, 0.0, work=600)
    queue.served("a", 0.0, 88)
    queue.served("b", 0.0, 0)
    assert queue.choose(100.0).id == "a"
    queue.served("a", 0.0, 0)
    assert queue.choose(100.0) is None
    queue.remove("b")
    assert queue.choose(100.0).id == "c"


def test_running_and_the_bound_are_kept_and_the_others_refused_at_once() -> None:  # case J07
    queue, refused = Queue(slots=4, bound=8), []
    for i in range(500):
        try:
            queue.add(str(i), 0.0, work=10)
        except QueueFullError as error:
            refused.append(error)
    assert len(queue) == 12
    assert len(refused) == 488
    assert (refused[0].running, refused[0].waiting, refused[0].bound) == (4, 8, 8)
    queue.remove("3")
    queue.add("again", 0.0, work=10)


def test_deadlines_count_in_every_stage() -> None:
    queue = Queue(slots=2, bound=2)
    for name, timeout in (("queued", 2.0), ("reading", 3.0), ("decoding", 4.0), ("patient", None)):
        queue.add(name, 1.0, work=600, timeout=timeout)
    queue.served("reading", 1.0, 100)
    queue.served("decoding", 1.0, 0)
    assert queue.expired(2.9) == []
    assert queue.expired(4.0) == ["queued", "reading"]
    assert queue.expired(1e9) == ["queued", "reading", "decoding"]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"priority": 101}, "priority must be"),
        ({"priority": 1.0}, "priority must be"),
        ({"priority": True}, "priority must be"),
        ({"timeout": 0}, "timeout must be"),
        ({"timeout": math.nan}, "timeout must be"),
        ({"timeout": math.inf}, "timeout must be"),
    ],
    ids=str,
)
def test_values_out_of_range_are_refused(values, message) -> None:
    queue = Queue(slots=1, bound=1)
    with pytest.raises(RequestError, match=message):
        queue.add("a", 0.0, work=1, **values)
    assert len(queue) == 0


def test_an_id_in_use_is_refused() -> None:
    queue = Queue(slots=1, bound=1)
    queue.add("a", 0.0, work=1)
    with pytest.raises(RequestError, match="'a' is not finished"):
        queue.add("a", 0.0, work=1)
    queue.remove("a")
    queue.add("a", 0.0, work=1)


@pytest.mark.parametrize("values", [{"slots": 0, "bound": 1}, {"slots": 1, "bound": -1}], ids=str)
def test_a_queue_without_room_is_refused(values) -> None:
    with pytest.raises(RequestError, match="slots >= 1"):
        Queue(**values)
