"""The line of requests before several models, against a plain model of what must hold."""

import itertools
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strata.server.fleet.line import Action, Admit, Line, Load, Phase, Spec, Unload

NAMES = "abcd"


class Fleet(RuleBasedStateMachine):
    """A dictionary says where each request and model is; the line must never say anything else."""

    @initialize(
        sizes=st.lists(st.integers(1, 4), min_size=4, max_size=4),
        idles=st.lists(st.sampled_from([None, 3.0, 20.0]), min_size=4, max_size=4),
        most=st.integers(1, 3),
        room=st.sampled_from([None, 4, 6]),
        early=st.sampled_from([None, *NAMES]),
    )
    def begin(self, sizes, idles, most, room, early) -> None:
        specs = [
            Spec(name=name, size=size, idle=idle, early=name == early)
            for name, size, idle in zip(NAMES, sizes, idles, strict=True)
        ]
        self.line = Line(specs, most=most, room=room, turn=5.0)
        self.specs = {spec.name: spec for spec in specs}
        self.most, self.room = most, room
        self.now = 0.0
        self.numbers = itertools.count()
        self.phases = dict.fromkeys(NAMES, Phase.ASLEEP)
        self.waiting: dict[int, tuple[str, float]] = {}
        self.running: dict[int, str] = {}
        self.worked: dict[str, float] = {}
        self.leaving: set[str] = set()
        self.early = early
        self.step()

    def step(self) -> list[Action]:
        actions = self.line.step(self.now)
        for action in actions:
            match action:
                case Load(model=name):
                    assert self.phases[name] is Phase.ASLEEP
                    if not any(model == name for model, _ in self.waiting.values()):
                        assert name == self.early
                        self.early = None
                    self.phases[name] = Phase.LOADING
                    self.fits()
                case Unload(model=name):
                    assert self.phases[name] is Phase.READY
                    assert name not in self.running.values(), "a running answer was cut"
                    idle = self.specs[name].idle
                    rested = idle is not None and self.now >= self.worked[name] + idle
                    pushed = any(self.phases[model] is Phase.ASLEEP for model, _ in self.waiting.values())
                    assert rested or pushed or name in self.leaving, "it went without a reason"
                    self.leaving.discard(name)
                    self.phases[name] = Phase.ENDING
                case Admit(ticket=ticket):
                    assert isinstance(ticket, int)
                    name, _ = self.waiting.pop(ticket)
                    assert self.phases[name] is Phase.READY
                    assert name not in self.leaving, "one that is to go takes more work"
                    older = [t for t, (model, _) in self.waiting.items() if model == name and t < ticket]
                    assert not older, "a later request for the same model went first"
                    self.running[ticket] = name
                    self.worked[name] = self.now
        assert self.line.step(self.now) == [], "a second look finds more to do"
        assert self.leaving <= set(self.running.values()), "it has no work and does not go"
        return actions

    def fits(self) -> None:
        there = [self.specs[name] for name, phase in self.phases.items() if phase is not Phase.ASLEEP]
        assert len(there) <= self.most
        assert self.room is None or len(there) == 1 or sum(spec.size for spec in there) <= self.room

    @rule(name=st.sampled_from(NAMES))
    def want(self, name) -> None:
        ticket = next(self.numbers)
        self.waiting[ticket] = (name, self.now)
        self.line.want(ticket, name, self.now)
        self.step()

    @precondition(lambda self: self.waiting or self.running)
    @rule(data=st.data())
    def leave(self, data) -> None:
        ticket = data.draw(st.sampled_from(sorted([*self.waiting, *self.running])))
        self.waiting.pop(ticket, None)
        if ticket in self.running:
            self.worked[self.running.pop(ticket)] = self.now
        self.line.leave(ticket, self.now)
        self.step()

    @precondition(lambda self: Phase.LOADING in self.phases.values())
    @rule(data=st.data(), well=st.integers(0, 3))
    def loading_ends(self, data, well) -> None:
        name = data.draw(st.sampled_from([n for n, phase in self.phases.items() if phase is Phase.LOADING]))
        if well:
            self.line.loaded(name, self.now)
            self.phases[name] = Phase.READY
            self.worked[name] = self.now
        else:
            lost = self.line.failed(name)
            assert lost == [ticket for ticket, (model, _) in self.waiting.items() if model == name]
            self.waiting = {ticket: one for ticket, one in self.waiting.items() if ticket not in lost}
            self.phases[name] = Phase.ASLEEP
        self.step()

    @precondition(lambda self: Phase.ENDING in self.phases.values())
    @rule(data=st.data())
    def ending_ends(self, data) -> None:
        name = data.draw(st.sampled_from([n for n, phase in self.phases.items() if phase is Phase.ENDING]))
        self.line.gone(name)
        self.phases[name] = Phase.ASLEEP
        self.step()

    @precondition(lambda self: Phase.READY in self.phases.values())
    @rule(data=st.data())
    def one_is_to_go(self, data) -> None:
        name = data.draw(st.sampled_from([n for n, phase in self.phases.items() if phase is Phase.READY]))
        self.line.release(name)
        self.leaving.add(name)
        self.step()

    @precondition(lambda self: Phase.READY in self.phases.values())
    @rule(data=st.data())
    def a_ready_one_is_lost(self, data) -> None:
        name = data.draw(st.sampled_from([n for n, phase in self.phases.items() if phase is Phase.READY]))
        self.line.gone(name)
        self.leaving.discard(name)
        self.phases[name] = Phase.ASLEEP
        for ticket in [t for t, model in self.running.items() if model == name]:
            del self.running[ticket]
            self.line.leave(ticket, self.now)
        self.step()

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 25.0]))
    def time_goes_by(self, seconds) -> None:
        before = self.line.due
        self.now += seconds
        actions = self.step()
        assert not actions or self.now >= before, "something was due that was not announced"

    @invariant()
    def it_says_how_things_are(self) -> None:
        for name in NAMES:
            assert self.line.phase(name) is self.phases[name]
            assert self.line.leaving(name) is (name in self.leaving)
            assert self.line.waiting(name) == sum(model == name for model, _ in self.waiting.values())
            assert self.line.running(name) == sum(model == name for model in self.running.values())
        ready = [name for name, phase in self.phases.items() if phase is Phase.READY]
        stuck = [name for name, _ in self.waiting.values() if name in ready and name not in self.leaving]
        claims = [name for name, _ in self.waiting.values() if name not in ready]
        assert claims or not stuck, "a request waits for a model that is there, and nobody else does"

    def teardown(self) -> None:
        """Whatever happened, everybody who waits is served, if answers end and loading works."""
        if not hasattr(self, "line"):
            return
        originals = set(self.waiting)
        for _ in range(60):
            for name, phase in self.phases.items():
                if phase is Phase.LOADING:
                    self.line.loaded(name, self.now)
                    self.phases[name], self.worked[name] = Phase.READY, self.now
                elif phase is Phase.ENDING:
                    self.line.gone(name)
                    self.phases[name] = Phase.ASLEEP
            # Every model that is there is asked for again before its last answer ends: only closing helps the others.
            for ticket, name in list(self.running.items()):
                if self.phases[name] is Phase.READY:
                    again = next(self.numbers)
                    self.waiting[again] = (name, self.now)
                    self.line.want(again, name, self.now)
                    self.step()
                del self.running[ticket]
                self.line.leave(ticket, self.now)
            self.now += 2.0
            self.step()
            if not originals & set(self.waiting):
                return
        raise AssertionError(f"somebody waits for ever: {self.waiting}")


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def line(*, turn: float = 10.0) -> Line:
    return Line([Spec(name="a"), Spec(name="b"), Spec(name="c")], most=1, turn=turn)


def load(one: Line, name: str, now: float) -> None:
    assert one.step(now) == [Load(name)]
    one.loaded(name, now)


def swap(one: Line, out: str, into: str, now: float) -> None:
    assert one.step(now) == [Unload(out)]
    one.gone(out)
    load(one, into, now)


def test_two_that_do_not_fit_together_are_served_in_order() -> None:
    one = line()
    one.want(1, "a", 0)
    one.want(2, "b", 0)
    one.want(3, "a", 0)
    load(one, "a", 0)
    assert one.step(1) == [Admit(1), Admit(3)]  # its turn: later ones for the same go along
    one.leave(1, 2)
    assert one.step(2) == []
    one.leave(3, 3)
    swap(one, "a", "b", 3)  # no work: it need not wait for the turn's end
    assert one.step(3) == [Admit(2)]


def test_a_model_that_is_always_asked_for_gives_way_after_its_turn() -> None:
    one = line(turn=10)
    one.want(0, "a", 0)
    load(one, "a", 0)
    assert one.step(0) == [Admit(0)]
    one.want("b", "b", 4)
    assert one.step(4) == []
    assert one.due == 14  # the claim came at 4
    one.want(1, "a", 13)
    assert one.step(13) == [Admit(1)]
    one.leave(0, 13)
    one.want(2, "a", 15)
    assert one.step(15) == []  # closed
    one.leave(1, 16)
    swap(one, "a", "b", 16)
    assert one.step(16) == [Admit("b")]
    # and now the other way round: b keeps its turn from when it was ready, though the claim for a is older
    one.want("b2", "b", 20)
    assert one.step(20) == [Admit("b2")]
    assert one.due == 26
    one.want("b3", "b", 27)
    assert one.step(27) == []
    one.leave("b", 28)
    one.leave("b2", 28)
    swap(one, "b", "a", 28)
    assert one.step(28) == [Admit(2)]


def test_who_gives_up_gives_the_claim_back() -> None:
    one = line(turn=1)
    one.want(1, "a", 0)
    load(one, "a", 0)
    one.step(0)
    one.want(2, "b", 0)
    one.want(3, "a", 5)
    assert one.step(5) == []
    one.leave(2, 6)
    assert one.step(6) == [Admit(3)]


def test_the_least_recently_used_goes() -> None:
    one = Line([Spec(name=name) for name in "abc"], most=2)
    for name, now in (("a", 0.0), ("b", 1.0), ("a", 2.0)):
        one.want(now, name, now)
        for action in one.step(now):
            if isinstance(action, Load):
                one.loaded(action.model, now)
                one.step(now)
        one.leave(now, now)
    one.want("c", "c", 3)
    assert one.step(3) == [Unload("b")]


def test_no_more_go_than_have_to() -> None:
    one = Line(
        [Spec(name="big", size=3), Spec(name="a", size=1), Spec(name="b", size=2), Spec(name="c", size=1)], room=4
    )
    for now, name in enumerate("abc"):
        one.want(name, name, now)
        load(one, name, now)
        one.step(now)
        one.leave(name, now)
    one.want("big", "big", 5)
    assert one.step(5) == [Unload("a"), Unload("b")]


def test_one_that_is_fixed_is_always_there() -> None:
    one = Line([Spec(name="a", fixed=True, idle=1)])
    assert one.step(0) == []
    one.want(1, "a", 0)
    assert one.step(0) == [Admit(1)]
    one.leave(1, 1)
    assert one.step(100) == []
    assert one.due == math.inf


def test_what_is_larger_than_the_room_still_fits_alone() -> None:
    one = Line([Spec(name="a", size=9), Spec(name="b", size=1)], room=4)
    one.want(1, "a", 0)
    load(one, "a", 0)


def test_nobody_behind_the_claim_is_loaded_however_small() -> None:
    one = Line([Spec(name="a", size=2), Spec(name="big", size=3), Spec(name="small", size=1)], room=4)
    one.want(1, "a", 0)
    load(one, "a", 0)
    one.step(0)
    one.want(2, "big", 1)
    one.want(3, "small", 1)
    assert one.step(1) == []
    one.leave(1, 2)
    assert one.step(2) == [Unload("a")]
    one.gone("a")
    assert one.step(2) == [Load("big"), Load("small")]


def test_what_was_closed_stays_the_next_to_go() -> None:
    one = Line([Spec(name="a"), Spec(name="b"), Spec(name="c")], most=2, turn=1)
    for ticket, name in ((1, "a"), (2, "a"), (3, "b")):
        one.want(ticket, name, ticket)
        if one.step(ticket) == [Load(name)]:
            one.loaded(name, ticket)
            one.step(ticket)
    one.want("c", "c", 5)
    one.want("more", "a", 7)
    assert one.step(7) == []
    one.leave(1, 8)  # a has just had something to do, and still it is the one that goes
    assert one.step(8) == []
    one.leave(2, 9)
    swap(one, "a", "c", 9)


def test_one_that_is_to_go_ends_its_answers_and_comes_back_for_those_that_wait() -> None:
    one = line()
    one.want(1, "a", 0)
    load(one, "a", 0)
    assert one.step(0) == [Admit(1)]
    one.release("a")
    one.want(2, "a", 1)
    assert one.step(1) == []
    one.leave(1, 2)
    assert one.step(2) == [Unload("a")]
    assert not one.leaving("a")
    one.gone("a")
    load(one, "a", 3)
    assert one.step(3) == [Admit(2)]
