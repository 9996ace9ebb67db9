"""The mailbox and the list of requests, against plain models of them."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from strata.worker import EngineError, Finished, Kind, Piece, Progress, Submit, Tokens, Usage
from strata.worker.mailbox import Mailbox
from strata.worker.requests import Entry, Requests, Stage

DONE = Finished("a", "stop", Usage(1))


def tokens(*ids: int) -> Tokens:
    return Tokens("a", tuple(Piece(i, b"x") for i in ids))


class Box(RuleBasedStateMachine):
    """Every token comes out once and in order, the newest progress before what follows it, one end at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.box = Mailbox()
        self.model: list[object] = []  # ids of tokens, ("read", n), "end" or "error"
        self.over = False

    def put(self, event, *marks: object) -> None:
        self.box.put(event)
        if self.over:
            return
        if isinstance(event, Progress) and self.model and isinstance(self.model[-1], tuple):
            self.model.pop()
        self.model += marks

    @rule(ids=st.lists(st.integers(0, 9), min_size=1, max_size=4))
    def tokens(self, ids) -> None:
        self.put(tokens(*ids), *ids)

    @rule(n=st.integers(0, 99))
    def progress(self, n) -> None:
        self.put(Progress("a", n, 99), ("read", n))

    @rule()
    def finish(self) -> None:
        self.put(DONE, "end")
        self.over = True

    @rule()
    def fail(self) -> None:
        self.box.fail(EngineError(Kind.FAILED, "x"))
        if not self.over:
            self.model.append("error")
        self.over = True

    @rule()
    def take(self) -> None:
        if self.model[:1] == ["error"]:
            with pytest.raises(EngineError):
                self.box.take(0)
            return
        event = self.box.take(0)
        if event is None:
            assert not self.model
        elif isinstance(event, Tokens):
            ids = [piece.id for piece in event.tokens]
            assert self.model[: len(ids)] == ids
            assert len(self.model) == len(ids) or not isinstance(self.model[len(ids)], int)  # all that wait together
            del self.model[: len(ids)]
        else:
            assert self.model.pop(0) == ("end" if event is DONE else ("read", event.read))

    @invariant()
    def counted(self) -> None:
        assert self.box.unread == sum(isinstance(mark, int) for mark in self.model)
        assert self.box.over == self.over


TestBox = Box.TestCase


def test_a_reader_sleeps_until_there_is_something() -> None:
    box = Mailbox()
    assert box.take(0.01) is None
    threading.Timer(0.05, box.put, [DONE]).start()
    assert box.take(5) is DONE
    assert box.take(5) is None


def test_whoever_asks_is_told_of_every_change() -> None:
    box, told = Mailbox(), []
    box.put(tokens(1))
    box.on_change(lambda: told.append(1))
    box.put(tokens(2))
    box.fail(EngineError(Kind.FAILED, "x"))
    box.put(tokens(3))
    assert len(told) == 3


@given(st.lists(st.sampled_from(["add", "send", "start", "finish", "die"]), max_size=60))
def test_a_death_fails_what_was_begun_and_keeps_the_rest_once(actions) -> None:
    requests, model = Requests(), {}
    for number, action in enumerate(actions):
        waiting, sent, started = ([name for name, (stage, _) in model.items() if stage is wanted] for wanted in Stage)
        if action == "add":
            requests.add(Entry(Submit((1,), str(number))))
            model[str(number)] = (Stage.WAITING, 0)
        elif action == "send" and waiting:
            requests.get(waiting[0]).stage = Stage.SENT
            model[waiting[0]] = (Stage.SENT, model[waiting[0]][1])
        elif action == "start" and sent:
            requests.get(sent[0]).stage = Stage.STARTED
            model[sent[0]] = (Stage.STARTED, 0)
        elif action == "finish" and started:
            requests.remove(started[0])
            del model[started[0]]
        elif action == "die":
            boxes = {entry.request.id: entry.mailbox for entry in requests}
            requests.engine_died(lambda: EngineError(Kind.ENGINE_DIED, "x"))
            lost = started + [name for name in sent if model[name][1]]
            for name in lost:
                del model[name]
                with pytest.raises(EngineError):
                    boxes[name].take(0)
            for name in set(sent) - set(lost):
                model[name] = (Stage.WAITING, 1)
        assert {entry.request.id: entry.stage for entry in requests} == {n: stage for n, (stage, _) in model.items()}
        assert [requests.count(stage) for stage in Stage] == [len(requests.at(stage)) for stage in Stage]
