"""What an engine still does for requests that were ended from outside."""

import time

from strata.worker import Submit, Tokens
from strata.worker.cancels import Cancels, Leaving
from strata.worker.messages import Failed, Finished, Progress, Usage
from strata.worker.messages import Tokens as Report


def test_units_that_end_after_the_order_count_once_each() -> None:
    leaving = Leaving()
    for name in ("none", "one", "two", "many"):
        leaving.told(name, 10.0)
    leaving.told("one", 99.0)  # told twice: the first time counts
    assert leaving.counts == Cancels(open=4)
    leaving.heard(Report("none", (), 9.9), 10.5)  # was on its way when the order was given
    leaving.heard(Progress("one", 1, 1, when=10.1), 10.5)  # a pass that ends a prompt says both at once
    leaving.heard(Report("one", (), 10.1), 10.5)
    for when in (10.1, 10.2):
        leaving.heard(Report("two", (), when), 10.5)
    for when in (10.1, 10.2, 10.3, 10.4, 10.5):
        leaving.heard(Report("many", (), when), 10.5)
    leaving.heard(Report("nobody cancelled this", (), 11.0), 11.0)
    leaving.heard(Finished("nobody cancelled this", "stop", Usage(1)), 11.0)
    leaving.heard(Finished("none", "cancelled", Usage(1)), 10.5)
    leaving.heard(Finished("one", "cancelled", Usage(1)), 10.5)
    leaving.heard(Failed("two", "failed", "a fault"), 12.0)
    assert leaving.counts == Cancels(3, 1, (1, 1, 1, 0), 0.0, 2.0)
    leaving.heard(Finished("many", "cancelled", Usage(1)), 10.5)
    assert leaving.counts == Cancels(4, 0, (1, 1, 1, 1), 0.0, 2.0)
    leaving.heard(Finished("many", "stop", Usage(1)), 10.5)  # another of that name
    assert leaving.counts.count == 4


def test_what_the_engine_did_while_the_order_was_on_its_way_is_no_fault_of_its_own() -> None:
    leaving = Leaving()
    leaving.told("a", 10.0)
    for when in (10.1, 10.2, 10.3):
        leaving.heard(Report("a", (), when), 10.5)
    leaving.heard(Finished("a", "cancelled", Usage(1), told=10.25), 10.5)
    assert leaving.counts == Cancels(1, 0, (0, 1, 0, 0), 0.25, 0.5)


def test_an_engine_that_is_gone_does_nothing_any_more() -> None:
    leaving = Leaving()
    leaving.told("a", 1.0)
    leaving.died()
    assert leaving.counts == Cancels()


def test_the_status_says_what_became_of_those_that_were_left(scripted) -> None:
    client = scripted({"pieces": ["a"] * 10000, "delay_ms": 100}, reading_ms=100)
    answering, reading = client.submit(Submit((1,))), client.submit(Submit((1,) * 20000))
    assert any(isinstance(event, Tokens) for event in answering)
    assert client.status.cancels == Cancels()
    answering.close()
    reading.close()
    answering.close()
    end = time.monotonic() + 10
    while (cancels := client.status.cancels).count < 2:
        assert time.monotonic() < end, cancels
        time.sleep(0.005)
    assert (cancels.open, sum(cancels.units)) == (0, 2)
    assert 0 < cancels.slowest <= cancels.longest < 10
    list(client.submit(Submit((1,), max_tokens=1)))  # one that ends by itself is not among them
    assert client.status.cancels.count == 2
