"""The scripted engine itself, without a process around it."""

import time

import pytest

from strata.engine import Sampling
from strata.errors import QueueFullError, RequestError
from strata.text import Tokenizer
from strata.worker import messages as m
from strata.worker.script import parse_script
from strata.worker.scripted import Scripted
from support.tiny_file import tiny_metadata


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_metadata(tiny_metadata())


def run(engine: Scripted, seconds: float = 5.0) -> dict[str, list[object]]:
    """Work until idle; events by request."""
    found: dict[str, list[object]] = {}
    end = time.monotonic() + seconds
    while not engine.idle:
        assert time.monotonic() < end
        time.sleep(engine.wait())
        for event in engine.tick():
            found.setdefault(event.id, []).append(event)
    return found


def engine(tokenizer: Tokenizer, *turns: dict[str, object], **setup: object) -> Scripted:
    script = parse_script({"turns": list(turns)})
    return Scripted(script, tokenizer, Sampling(), m.ScriptedEngine("s.json", **setup))  # type: ignore[arg-type]


def pieces(events: list[object]) -> list[m.Piece]:
    return [piece for event in events if isinstance(event, m.Tokens) for piece in event.tokens]


def test_tags_have_their_ids_and_pieces_their_exact_bytes(tokenizer) -> None:
    said = ["<think>", "a", "</think>", "<tool_call>", "zqzq", {"hex": "e6"}, {"hex": "bca2"}, "zqzq", " Ġ"]
    scripted = engine(tokenizer, {"pieces": said})
    scripted.submit(m.Submit((1, 2), "r"))
    found = pieces(run(scripted)["r"])
    assert [piece.bytes for piece in found] == [
        bytes.fromhex(piece["hex"]) if isinstance(piece, dict) else piece.encode() for piece in said
    ]
    for piece in found:
        if piece.id < tokenizer.size:
            assert tokenizer.token_bytes(piece.id) == piece.bytes
    ids = [piece.id for piece in found]
    assert [ids[0], ids[2], ids[3]] == [tokenizer.id_of(tag) for tag in ("<think>", "</think>", "<tool_call>")]
    assert ids[1] == tokenizer.encode("a")[0]
    assert ids[4] == ids[7] >= tokenizer.size
    assert len(set(ids)) == len(ids) - 1


def test_turns_go_by_requests_in_order_and_finish_as_they_say(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"]}, {"pieces": ["b", "c"], "finish": "length"})
    for name in "xyz":
        scripted.submit(m.Submit((1, 2, 3), name))
    found = run(scripted)
    assert ["".join(p.bytes.decode() for p in pieces(found[name])) for name in "xyz"] == ["a", "bc", "bc"]
    first, second = found["x"][-1], found["y"][-1]
    assert isinstance(first, m.Finished)
    assert isinstance(second, m.Finished)
    assert (first.reason, first.stop_id, first.usage.generated) == ("stop", tokenizer.eos_ids[0], 2)
    assert (second.reason, second.stop_id, second.usage.generated) == ("length", None, 2)


def test_stop_tokens_and_limits_end_an_answer_as_they_would_a_real_one(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a", "<|im_end|>", "b"]}, {"pieces": ["a"] * 50}, context=24)
    letter = tokenizer.encode("a")[0]
    for name, extra in (("stop", {}), ("most", {"max_tokens": 3}), ("room", {}), ("own", {"stop_ids": (letter,)})):
        scripted.submit(m.Submit((1,) * 20, name, **extra))  # type: ignore[arg-type]
    found = {name: (events[-1].reason, len(pieces(events))) for name, events in run(scripted).items()}  # type: ignore[attr-defined]
    assert found == {"stop": ("stop", 1), "most": ("length", 3), "room": ("length", 4), "own": ("stop", 0)}


def test_progress_comes_in_chunks_behind_what_was_cached(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"], "cached": 100}, reading_ms=1)
    scripted.submit(m.Submit((1,) * 200, "r"))
    events = run(scripted)["r"]
    assert [e.read for e in events if isinstance(e, m.Progress)] == [100, 164, 200]
    assert {e.cached for e in events if isinstance(e, m.Progress)} == {100}
    assert events[-1].usage.cached == 100  # type: ignore[attr-defined]


def test_each_answer_keeps_its_own_pace_and_several_run_at_once(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"] * 10, "delay_ms": 20}, {"pieces": ["b"] * 100, "delay_ms": 2})
    for name in "xy":
        scripted.submit(m.Submit((1,), name))
    began = time.monotonic()
    found = run(scripted)
    took = time.monotonic() - began
    assert 0.2 <= took < 0.39  # one after the other they would need 0.4 s
    assert [len(pieces(found[name])) for name in "xy"] == [10, 100]


def test_requests_beyond_the_slots_wait_and_beyond_the_queue_are_refused(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"] * 3, "delay_ms": 5}, conversations=1, queue=2)
    scripted.submit(m.Submit((1,), "first"))
    scripted.tick()
    scripted.submit(m.Submit((1,), "low"))
    scripted.submit(m.Submit((1,), "high", priority=1))
    with pytest.raises(QueueFullError, match="1 requests run and 2 wait"):
        scripted.submit(m.Submit((1,), "more"))
    scripted.cancel("nobody")
    ends = [name for name, events in run(scripted).items() if isinstance(events[-1], m.Finished)]
    assert ends == ["first", "high", "low"]


def test_cancelling_and_deadlines_end_work_before_the_next_token(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"] * 1000, "delay_ms": 1}, conversations=2, reading_ms=5)
    for name, extra in (("run", {}), ("late", {"timeout": 0.06}), ("queued", {}), ("queued late", {"timeout": 0.01})):
        scripted.submit(m.Submit((1,) * 100, name, **extra))  # type: ignore[arg-type]
    scripted.tick()
    scripted.cancel("run")
    scripted.cancel("queued")
    found = run(scripted)
    reasons = {name: events[-1].reason for name, events in found.items()}  # type: ignore[attr-defined]
    assert reasons == {"run": "cancelled", "late": "timeout", "queued": "cancelled", "queued late": "timeout"}
    assert not pieces(found["run"])
    assert 0 < len(pieces(found["late"])) < 100
    assert found["queued"][-1].usage.generated == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (m.Submit((), "r"), "the prompt is empty"),
        (m.Submit((1, 9999), "r"), "token id 9999 is outside the vocabulary"),
        (m.Submit((1,) * 24, "r"), "the prompt has 24 tokens, but the context holds 24"),
        (m.Submit((1,), "r", max_tokens=0), "max_tokens"),
        (m.Submit((1,), "r", timeout=0), "timeout"),
        (m.Submit((1,), "r", logprobs=21), "logprobs must be an integer from 0 to 20, not 21"),
        (m.Submit((1,), "r", sampling={"temperature": -1}), "temperature must be"),
        (m.Submit((1,), "r", sampling={"temprature": 1}), "unknown sampling value 'temprature'; there are temperature"),
        (m.Submit((1,), "r", drafting={"depth": 8}), "from 0 to 7"),
    ],
    ids=str,
)
def test_it_is_as_strict_as_a_real_one(tokenizer, request_, said) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"]}, context=24)
    with pytest.raises(RequestError, match=said):
        scripted.submit(request_)
    assert scripted.idle


def test_probabilities_are_there_when_asked_for(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"]})
    scripted.submit(m.Submit((1,), "r", logprobs=3))
    scripted.submit(m.Submit((1,), "s"))
    found = run(scripted)
    (piece,) = pieces(found["r"])
    assert piece.top[0] == (piece.id, piece.logprob)
    assert [logprob for _, logprob in piece.top] == sorted((logprob for _, logprob in piece.top), reverse=True)
    assert len({i for i, _ in piece.top}) == 3
    assert pieces(found["s"])[0].top == ()


def test_a_fault_comes_behind_the_pieces(tokenizer) -> None:
    scripted = engine(tokenizer, {"pieces": ["a"], "fault": "raise"}, {"pieces": ["a"], "fault": "memory"})
    scripted.submit(m.Submit((1,), "r"))
    events = run(scripted)["r"]
    assert len(pieces(events)) == 1
    assert isinstance(events[-1], m.Failed)
    scripted.submit(m.Submit((1,), "s"))
    with pytest.raises(MemoryError):
        run(scripted)


def test_the_pace_is_exact_however_late_it_is_asked(tokenizer) -> None:  # case T04
    scripted = engine(tokenizer, {"pieces": ["a"] * 200, "delay_ms": 5})
    scripted.submit(m.Submit((1,), "r"))
    began = time.monotonic()
    scripted.tick()
    time.sleep(0.3)
    asked = time.monotonic()
    said = len(pieces(list(scripted.tick())))
    assert (asked - began) / 0.005 - 5 < said <= (time.monotonic() - began) / 0.005


def test_a_tag_beyond_ascii_has_its_id_too() -> None:
    class Words:
        size = 10
        eos_ids = (9,)

        def id_of(self, text: str) -> int | None:
            return {"<｜ende｜>": 7}.get(text)

        def token_bytes(self, _token: int) -> bytes:
            return "<｜ende｜>".encode()

    scripted = Scripted(parse_script({"turns": [{"pieces": []}]}), Words(), Sampling(), m.ScriptedEngine(""))  # type: ignore[arg-type]
    assert [scripted.token(piece.encode()) for piece in ("<｜ende｜>", "x", "y", "x")] == [7, 10, 11, 10]


def test_a_thinking_budget_is_kept_and_the_script_goes_on_behind_its_block(tokenizer) -> None:
    end = tokenizer.id_of("</think>")
    closing = (*tokenizer.encode("\n"), end)
    turns = (
        {"pieces": ["a", "b", "c", "d", "</think>", "said"]},
        {"pieces": ["a", "</think>", "said"]},
        {"pieces": ["a", "b", "c"]},
    )
    scripted = engine(tokenizer, *turns)
    for name in "xyz":
        scripted.submit(m.Submit((1, 2, 3), name, budget=m.Budget(2, closing, end)))
    found = run(scripted)
    said = {name: b"".join(p.bytes for p in pieces(found[name])).decode() for name in "xyz"}
    assert said == {"x": "ab\n</think>said", "y": "a</think>said", "z": "ab\n</think>c"}


@pytest.mark.parametrize("budget", [(-1, (5,), 5), (3, (5,), 6), (3, (99999, 5), 5)], ids=str)
def test_a_budget_that_makes_no_sense_is_refused(tokenizer, budget) -> None:
    with pytest.raises(RequestError):
        engine(tokenizer, {"pieces": ["a"]}).submit(m.Submit((1,), "x", budget=m.Budget(*budget)))
