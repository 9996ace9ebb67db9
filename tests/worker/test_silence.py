"""Engines that keep silent: how often and how long is counted."""

import time

from strata.worker import Care, Client, CustomEngine
from strata.worker.silence import Stalls


def test_only_long_silences_are_stalls() -> None:
    stalls = Stalls()
    for seconds in (0.1, 4.9, 5.0, 0.2, 60.0, 7.0):
        stalls.ended(seconds)
    assert (stalls.count, stalls.longest) == (3, 60.0)


def test_a_stall_is_seen_from_outside(monkeypatch) -> None:
    monkeypatch.setattr("strata.worker.silence.STALL", 0.5)
    engine = CustomEngine("support.engines:watched", {"stats": {}, "holdings": {}, "slow": 1.0})
    with Client(engine, Care(beat=0.05)) as client:
        client.wait_ready(30)
        before = client.status
        client.ask_stats().result(20)
        end = time.monotonic() + 20
        while client.status.stalls == before.stalls:
            assert time.monotonic() < end
            time.sleep(0.01)
        assert client.status.longest >= 0.9
