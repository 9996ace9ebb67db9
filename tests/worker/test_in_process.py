"""An engine in this process: whoever waits does the work."""

import threading

import pytest

from strata.errors import RequestError
from strata.worker import EngineError, Finished, Submit, Tokens
from strata.worker.answering import InProcess
from support.engines import Engine
from support.scripted import scripted_model


def read(answer) -> list[object]:
    events = []
    while (event := answer.take()) is not None:
        events.append(event)
    return events


def test_one_readers_work_serves_the_others() -> None:
    source = InProcess(Engine())
    answers = [source.submit(Submit((1,), name)) for name in "abc"]
    assert [type(event) for event in read(answers[2])] == [Tokens, Finished]
    assert source.engine.idle
    assert [[type(event) for event in read(answer)] for answer in answers[:2]] == [[Tokens, Finished]] * 2


def test_an_answer_nobody_reads_is_forgotten() -> None:
    source = InProcess(Engine())
    kept = source.submit(Submit((1,), "kept"))
    source.submit(Submit((1,), "dropped"))
    closed = source.submit(Submit((1,), "closed"))
    closed.close()
    read(kept)
    assert source.engine.idle
    assert not source._boxes


def test_a_stream_that_was_never_begun_leaves_nothing() -> None:
    model = scripted_model("1 2 3")
    model.stream_complete("a")
    assert model.complete("b").text == "1 2 3"
    assert model.source.engine.idle  # type: ignore[attr-defined]


def test_many_threads_share_one_engine() -> None:
    source = InProcess(Engine())
    found: list[object] = []

    def ask(number: int) -> None:
        answers = (source.submit(Submit((1,), f"{number}-{turn}")) for turn in range(20))
        found.extend([type(event) for event in read(answer)] for answer in answers)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [[Tokens, Finished]] * 160
    assert source.engine.idle


def test_an_id_may_be_used_again_as_soon_as_nobody_reads_it() -> None:
    model = scripted_model("1 2 3 4 5 6 7 8")
    source, prompt = model.source, tuple(model.tokenize("abc"))
    assert isinstance(source, InProcess)
    old = source.submit(Submit(prompt, "again"))
    while not isinstance(old.take(), Tokens):
        pass
    old.close()
    events = read(source.submit(Submit(prompt, "again", max_tokens=3)))
    assert sum(len(event.tokens) for event in events if isinstance(event, Tokens)) == 3
    assert isinstance(events[-1], Finished)
    assert {event.id for event in events} == {"again"}  # type: ignore[attr-defined]
    assert source.engine.idle
    assert not source._boxes
    assert not source._ending
    assert not source._ids


def test_a_closed_one_answers_nothing_more() -> None:
    closed = []

    class Closing(Engine):
        def close(self) -> None:
            closed.append(1)

    source = InProcess(Closing())
    answer = source.submit(Submit((1,), "a"))
    source.close()
    source.close()
    assert closed == [1]
    with pytest.raises(EngineError, match="closed"):
        read(answer)
    with pytest.raises(EngineError, match="closed"):
        source.submit(Submit((1,), "b"))


def test_what_an_engine_refuses_is_refused_at_once() -> None:
    model = scripted_model("x", context=8)
    with pytest.raises(RequestError):
        model.stream_complete("1 2 3 4 5 6 7 8 9")
