"""`tools/gpu_soak.py` in short, in Triton's interpreter; and that it notices what it is there to notice."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("triton")

from strata.engine import Drafting, Finish, FinishReason, GenerationError, Sampling, Token, Usage
from strata.errors import RoomError
from strata.experts.misses.answer import EXPERTS

TOOLS = Path(__file__).resolve().parents[1] / "tools"

sys.path.insert(0, str(TOOLS))
try:
    from tiersoak.asked import Turn
    from tiersoak.crowd import Asked, Crowd
    from tiersoak.memory import MB, Sample, Watch
    from tiersoak.promises import promises
finally:
    sys.path.remove(str(TOOLS))


@pytest.mark.slow
def test_two_conversations_with_slots_that_come_and_go(tmp_path):
    file = tmp_path / "soak.json"
    command = [sys.executable, "-W", "ignore", str(TOOLS / "gpu_soak.py"), "--device", "cpu", "--brief"]
    command += ["--minutes", "0.2", "--clients", "2", "--resize", "0.01", "--fault", "5", "--scratch", str(tmp_path)]
    done = subprocess.run(
        [*command, "--json", str(file)], capture_output=True, text=True, timeout=500, check=False, env=os.environ
    )
    assert file.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    told = json.loads(file.read_text("utf-8"))
    assert done.returncode == 0, (told["told"], told["wrong"])
    numbers = told["numbers"]
    assert numbers["tokens compared"] > 0
    assert numbers["units of work"] > 0
    assert numbers.get("resizes", 0) + numbers.get("sizes refused", 0) > 0


def turn(count=4):
    return Turn((1, 2), Sampling(temperature=0.0), Drafting(), count, 0, [(i, -0.5 * i, ()) for i in range(count)])


class Told:
    """A scheduler that says to each request what it is told, a token with each unit of work."""

    def __init__(self, *, spoilt=None, ends=None):
        self.spoilt, self.ends = spoilt, ends
        self.said, self.cancelled = {}, set()
        self.turns, self.clients = {}, []

    def submit(self, request, client):
        self.said[request.id] = 0
        self.clients.append(client)

    def cancel(self, name):
        self.cancelled.add(name)
        return True

    def tick(self):
        events = []
        for name, place in list(self.said.items()):
            reason = (
                FinishReason.CANCELLED if name in self.cancelled else FinishReason.LENGTH if place == 4 else self.ends
            )
            if reason is not None:
                del self.said[name]
                error = GenerationError("a fault") if reason is FinishReason.ERROR else None
                events.append((name, Finish(reason, place, usage=Usage(2), error=error)))
                continue
            self.said[name] += 1
            found = Token(place, -0.5 * place, ())
            events.append((name, found if place != self.spoilt else Token(place, -0.5 * place + 1e-7, ())))
        return events


def crowd(scheduler, *, resize=lambda _: None):
    tier = SimpleNamespace(host=SimpleNamespace(_desk=[0] * EXPERTS + [7]), room=SimpleNamespace(slots=(4,)))
    made = SimpleNamespace(tier=tier, first=1 / 3, moves=0, vram=lambda share: int(100 * share), resize=resize)
    return Crowd(made, scheduler, SimpleNamespace(first=[turn()]), 3, seed=1)


def test_clients_ask_again_and_all_is_compared():
    scheduler = Told()
    found = crowd(scheduler)
    asked = set()
    for _ in range(400):
        found.ask()
        asked.add(len(scheduler.said))
        found.tick()
    assert asked == {1, 2, 3}
    count = found.count
    assert found.wrong == []
    assert count["wrong"] == count["tokens that differ"] == 0
    assert count["answers compared whole"] > 20
    assert count["cancelled in their answer"] > 5
    assert count["cancelled before it"] > 0
    assert {*scheduler.clients} == {"0", "1", "2"}


def test_the_last_bit_of_a_number_is_noticed():
    found = crowd(Told(spoilt=2))
    found.submit(0, Asked(turn(), exact=True))
    while not found.idle:
        found.tick()
    assert found.count["tokens that differ"] == found.count["answers that differ"] == 1
    assert "differs at token 2" in found.wrong[0]
    assert not promises(found.count, Watch(SimpleNamespace(type="cpu")), {}, short=True)[0].kept


def test_what_was_cancelled_is_compared_as_far_as_it_came():
    found = crowd(Told(spoilt=1))
    found.submit(0, Asked(turn(), exact=True, enough=3))
    while not found.idle:
        found.tick()
    assert (found.count["cancelled in their answer"], found.count["answers that differ"]) == (1, 1)


@pytest.mark.parametrize("fault", [False, True])
def test_an_answer_may_end_with_an_error_in_a_fault_alone(fault):
    found = crowd(Told(ends=FinishReason.ERROR))
    found.submit(0, Asked(turn(), exact=True))
    found.tick(fault=fault)
    assert found.count["faults"] == fault
    assert found.count["wrong"] == (not fault)
    assert found._made.tier.host._desk[EXPERTS] == 7  # and the message makes sense again


def test_a_size_that_is_refused_changes_nothing():
    made = crowd(Told(), resize=lambda _: None)
    for _ in range(20):
        made.resize()
    assert made.count["resizes"] == 20
    found = crowd(Told())

    def refused(_):
        found._made.tier.room.slots = (5,)
        raise RoomError("no room")

    found._made.resize = refused
    found.resize()
    assert found.count["sizes refused"] == found.count["wrong"] == 1
    assert found.level == 1 / 3


def test_growth_counts_at_the_same_size_only():
    watch = Watch(SimpleNamespace(type="cpu"))
    count = {"tokens compared": 1, "tokens that differ": 0, "wrong": 0, "resizes": 1, "moves": 1}
    for second in range(100):
        level = (0.0, 0.5)[second // 5 % 2]
        start = 500 * MB if second < 8 else 0  # is none of it
        watch.samples.append(Sample(second, level, {"rss": start + int(1000 * MB * level), "files": 9}))
    assert {name: grown and grown[2] for name, grown in watch.grown().items()} == {"rss": True, "files": True}
    assert all(one.kept for one in promises(count, watch, {"cells": 0}, short=False))

    watch.samples = [Sample(one.when, one.level, {"rss": int(one.when * MB)}) for one in watch.samples]
    grown = watch.grown()["rss"]
    assert grown is not None
    assert grown[1] - grown[0] > 50 * MB
    assert [one.name for one in promises(count, watch, {}, short=False) if one.kept is False] == ["rss is flat"]
    assert not promises(count, watch, {"cells": 64}, short=False)[-2].kept

    watch.samples = watch.samples[:4]
    assert watch.grown() == {"rss": None}
