"""Forms of answers are compiled beside the work: other answers go on meanwhile."""

import json
import threading
import time

import pytest

from strata.loading.files import ModelFile
from strata.text.grammar import Grammars
from strata.worker import Budget, Client, Finished, Grammar, ModelEngine, Progress, Submit, Tokens
from strata.worker import messages as m
from strata.worker.errors import Kind
from strata.worker.resident import Resident

TEXT = tuple(ModelFile.open(None).tokenizer.encode("Count from 1 to 100."))
GREEDY = {"temperature": 0.0}


def schema(properties: int) -> Grammar:
    named = {f"property_{number}": {"type": "string"} for number in range(properties)}
    return Grammar("json_schema", json.dumps({"type": "object", "properties": named}))


@pytest.fixture
def engine():
    one = Resident.of(ModelFile.open(None), threads=1, options={"slots": 2, "queue": 1}, beside=True)
    yield one
    one.close()


@pytest.fixture
def held(monkeypatch):
    """Compiling waits until it is let go."""
    go, compiled = threading.Event(), []
    true = Grammars.constraint

    def slow(self, *args, **more):
        compiled.append(args)
        assert go.wait(60)
        return true(self, *args, **more)

    monkeypatch.setattr(Grammars, "constraint", slow)
    yield go, compiled
    go.set()


def turns(engine: Resident, until, seconds: float = 30) -> list:
    """What the engine says until something holds of it."""
    said: list = []
    end = time.monotonic() + seconds
    while not until(said):
        assert time.monotonic() < end
        said += engine.tick()
        time.sleep(engine.wait() if not engine.idle else 0.001)
    return said


def of(said: list, name: str, kind: type) -> list:
    return [one for one in said if one.id == name and isinstance(one, kind)]


def submit(name: str, grammar: Grammar | None = None, **more) -> Submit:
    stops = () if grammar is None else None
    return Submit(
        id=name, prompt=TEXT, sampling=GREEDY, grammar=grammar, **{"max_tokens": 24, "stop_ids": stops, **more}
    )


def test_tokens_of_another_answer_flow_while_a_form_is_compiled(engine, held) -> None:
    go, _ = held
    engine.submit(submit("free", max_tokens=60))
    turns(engine, lambda said: of(said, "free", Tokens))
    engine.submit(submit("form", schema(3)))
    said = turns(engine, lambda said: len(of(said, "free", Tokens)) >= 20)
    assert not [one for one in said if one.id == "form"]
    go.set()
    said = turns(engine, lambda said: of(said, "form", Finished))
    assert of(said, "form", Progress)
    text = b"".join(piece.bytes for tokens in of(said, "form", Tokens) for piece in tokens.tokens)
    assert text.lstrip().startswith(b"{")


def test_what_waits_for_its_form_can_be_cancelled_and_has_its_time(engine, held) -> None:
    _, compiled = held
    grammar = schema(4)
    engine.submit(submit("gone", grammar))
    engine.submit(submit("late", grammar, timeout=0.05))
    engine.submit(submit("other", grammar))
    assert not engine.idle
    assert engine.wait() > 0  # nothing else to do: the loop rests
    engine.cancel("gone")
    said = turns(engine, lambda said: of(said, "gone", Finished) and of(said, "late", Finished))
    assert of(said, "gone", Finished)[0].reason == "cancelled"
    late = of(said, "late", Finished)[0]
    assert late.reason == "timeout"
    assert late.usage.prompt == len(TEXT)
    assert late.usage.waiting_s >= 0.05
    assert len(compiled) == 1  # one grammar, one compilation
    engine.cancel("other")
    turns(engine, lambda said: of(said, "other", Finished))
    assert engine.idle


def test_as_many_wait_for_their_forms_as_may_wait_at_all(engine, held) -> None:
    from strata.errors import QueueFullError

    go, _ = held
    for number in range(3):
        engine.submit(submit(str(number), schema(number + 1)))
    with pytest.raises(QueueFullError):
        engine.submit(submit("3", schema(4)))
    go.set()
    said = turns(engine, lambda said: sum(isinstance(one, Finished | m.Failed) for one in said) == 3)
    assert not [one for one in said if isinstance(one, m.Failed)]


def test_a_bad_form_fails_its_request_alone_and_a_known_one_is_there_at_once(engine, held) -> None:
    go, compiled = held
    go.set()
    engine.submit(submit("bad", Grammar("lark", "start: nothing")))
    engine.submit(submit("good", schema(5)))
    said = turns(engine, lambda said: of(said, "good", Finished))
    (failed,) = of(said, "bad", m.Failed)
    assert failed.kind is Kind.BAD_REQUEST
    assert failed.error == "RequestError"
    first = [piece.id for tokens in of(said, "good", Tokens) for piece in tokens.tokens]
    assert len(compiled) == 2
    engine.submit(submit("again", schema(5)))
    said = turns(engine, lambda said: of(said, "again", Finished))
    assert len(compiled) == 2
    assert [piece.id for tokens in of(said, "again", Tokens) for piece in tokens.tokens] == first


def test_a_form_that_takes_too_long_is_given_up(engine, held, monkeypatch) -> None:
    monkeypatch.setattr("strata.worker.forms.SECONDS", 0.1)
    engine.submit(submit("long", schema(6)))
    said = turns(engine, lambda said: of(said, "long", m.Failed))
    assert "not compiled after 0.1 s" in of(said, "long", m.Failed)[0].message
    assert held is not None


def test_a_grammar_has_a_size_limit(engine) -> None:
    engine.submit(submit("large", Grammar("regex", "a" * (5 << 20))))
    said = turns(engine, lambda said: of(said, "large", m.Failed))
    assert "make it smaller" in of(said, "large", m.Failed)[0].message


def test_five_thousand_properties_in_a_real_engine() -> None:
    """The whole of it: another stream's tokens keep coming while the schema is compiled, and it can be used."""
    with Client(ModelEngine("pebble", 1, {"slots": 2})) as client:
        client.wait_ready(300)
        with client.submit(submit("", max_tokens=2000, budget=None)) as free:
            while not isinstance(free.take(), Tokens):
                pass
            wide = schema(5000)
            began = time.monotonic()
            with client.submit(submit("", wide, max_tokens=12)) as form:
                flowing = 0
                while (first := form.take(0)) is None:
                    flowing += isinstance(free.take(0.05), Tokens)
                assert flowing >= 5, "the other stream stands still"
                took = time.monotonic() - began
                assert not isinstance(first, Finished)
                *_, last = form
                assert isinstance(last, Finished)
            began = time.monotonic()
            with client.submit(submit("", wide, max_tokens=1)) as form:
                next(form)
                assert time.monotonic() - began < took  # it is kept


def test_a_form_and_a_budget_go_together(engine, held) -> None:
    go, _ = held
    go.set()
    closing = tuple(ModelFile.open(None).tokenizer.encode("</think>", special=True))
    budget = Budget(2, closing, closing[0])
    grammar = Grammar("json_object", after=closing[0])
    engine.submit(submit("both", grammar, budget=budget))
    said = turns(engine, lambda said: of(said, "both", Finished))
    text = b"".join(piece.bytes for tokens in of(said, "both", Tokens) for piece in tokens.tokens)
    assert text.partition(b"</think>")[2].lstrip().startswith(b"{")
