"""Conversations on Pebble in both quantisations: from memory, from files and after a restart as from the beginning."""

import time
from dataclasses import replace

import pytest
import torch

import strata
from strata.engine import Drafting, Request, Sampling
from strata.session.options import Options
from strata.session.scheduler import Scheduler
from support.serving import Alone, answer, check_kept, finish, ids, run


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("name", ["pebble", "pebble-iq3"])
def test_a_conversation_that_grows(tmp_path, name) -> None:
    model = strata.load(name)
    net = replace(model.network, drafts=True)
    alone, text, cached = Alone(net), model.tokenize("The keeper of the tower is Anna. " * 40), []
    assert len(text) > net.config.qsa.budget
    options = Options(folder=tmp_path, reserve=0, rows=64, step=64)
    drafting = Drafting(4, head=True, floor=0.0)
    for turn in range(3):
        scheduler = Scheduler(net, replace(options, ram=0) if turn == 1 else options)
        questions = [[*text, *model.tokenize(f" Question {turn}{part}:")] for part in "ab"]
        asked = [
            Request(f"{turn}{i}", tuple(one), Sampling(0.7 * i, seed=turn), max_tokens=10, drafting=drafting)
            for i, one in enumerate(questions)
        ]
        events = run(scheduler, *asked)
        for one in asked:
            assert answer(events[one.id]) == alone(one)
        usage = finish(events[asked[0].id]).usage
        cached.append(usage.prompt_tokens - usage.cached_tokens)
        text = [*questions[0], *ids(events[asked[0].id])]
        if turn == 1:
            until = time.monotonic() + 20
            while scheduler._store._folder.pending:
                assert time.monotonic() < until
            scheduler._store.trim()
            assert scheduler.stats().ram_bytes == 0
        if turn == 2 and name == "pebble":
            assert check_kept(scheduler._store, net)
        scheduler.close()
    assert cached[0] > net.config.qsa.budget
    assert max(cached[1:]) < 20, "after a restart only what is new is read"
