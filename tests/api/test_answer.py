"""Stop strings, grammars and reported tokens of an answer (cases H01, H03, H05, G07)."""

import json
import math

import numpy as np
import pytest
import torch

import strata
from strata.api import Chosen, Finished
from strata.engine import Sampling
from strata.errors import RequestError
from strata.text import Content, Reasoning, ToolCallStart
from support.scripted import Scripted, scripted_model

WEATHER = {"name": "get_w", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = "<tool_call>\n<function=get_w>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>"


def texts(events):
    return "".join(event.text for event in events if isinstance(event, Content))


@pytest.mark.parametrize("stop", ["vo ch", ["vo ch"], ["zz", "vo ch", "vo cha"]], ids=str)
def test_a_stop_string_ends_the_text_before_it_and_the_work_with_it(stop) -> None:  # case H01
    model = scripted_model("alpha bravo charlie")
    events = list(model.stream_complete("Say", stop=stop))
    assert texts(events) == "alpha bra"
    last = events[-1]
    assert isinstance(last, Finished)
    assert (last.reason, last.stop) == ("stop", "vo ch")
    asked = last.usage.completion_tokens
    script = model.network.script  # type: ignore[attr-defined]
    assert "vo ch" in model.detokenize(script[:asked])
    assert "vo ch" not in model.detokenize(script[: asked - 1]), "no token beyond the one that completes it"
    reply = model.complete("Say", stop=stop)
    assert (reply.text, reply.finish_reason, reply.stop) == ("alpha bra", "stop", "vo ch")


def test_what_might_have_become_a_stop_string_is_not_lost() -> None:  # case H03
    for text, stop in (("say <|e", "<|eot|>"), ("abca", "abcd")):
        reply = scripted_model(text).complete("Say", stop=[stop])
        assert (reply.text, reply.finish_reason, reply.stop) == (text, "stop", None)
    assert scripted_model("1 abc").complete("Say", stop="abcd", max_tokens=3).text.startswith("1 ")


@pytest.mark.parametrize(("stop", "text"), [
    (None, "hello world"), ([], "hello world"), ("wor", "hello "), (["wor"], "hello "),
    (["1", "2", "3", "4", "wor"], "hello "), (["x" * 10_000], "hello world"),
], ids=lambda value: str(value)[:30])  # fmt: skip
def test_every_form_of_stop(stop, text) -> None:  # case H05
    assert scripted_model("hello world").complete("Say", stop=stop).text == text


@pytest.mark.parametrize("stop", ["", [""], [None], 5, {"a": 1}], ids=repr)
def test_other_forms_are_refused_at_once(stop) -> None:
    with pytest.raises(RequestError, match=r"^stop"):
        scripted_model("hello world").stream_complete("Say", stop=stop)


def test_stop_strings_are_looked_for_in_the_answer_alone() -> None:
    model = scripted_model("END I think END.</think>\n\nThe END is near")
    reply = model.chat("Hi", stop=["END", "\n\n"])
    assert (reply.reasoning, reply.text, reply.stop) == ("END I think END.", "The ", "END")
    called = scripted_model(f"So.</think>\n\nI look: Ro {CALL}")
    events = list(called.stream_chat("Hi", tools=[WEATHER], stop=["Rome"]))
    assert any(isinstance(event, ToolCallStart) for event in events)
    kinds = [type(event) for event in events]
    assert texts(events[: kinds.index(ToolCallStart)]) == "I look: Ro"
    assert events[-1].stop is None  # type: ignore[union-attr]


def test_text_that_waits_comes_before_what_follows_it() -> None:
    reply = scripted_model(f"So.</think>\n\nI look at a {CALL}").chat("Hi", tools=[WEATHER], stop=["at all", "a b"])
    assert (reply.text, len(reply.tool_calls), reply.stop) == ("I look at a", 1, None)


def test_a_stop_string_of_blanks_works() -> None:
    for text in ("one\n\ntwo", "one\n\n"):
        reply = scripted_model(text).chat("Hi", thinking=False, stop="\n\n")
        assert (reply.text, reply.stop) == ("one", "\n\n")


@pytest.mark.parametrize("logprobs", [0, 3])
def test_every_token_is_reported_before_its_text(logprobs) -> None:  # case G07
    model = scripted_model("I count.</think>\n\n1, 2, 3 🙂")
    events = list(model.stream_chat("Count.", logprobs=logprobs))
    chosen = [event for event in events if isinstance(event, Chosen)]
    script = model.network.script  # type: ignore[attr-defined]
    assert [event.id for event in chosen] == script[:-1]
    assert b"".join(event.bytes for event in chosen).decode() == "I count.</think>\n\n1, 2, 3 🙂"
    usable = model.tokenizer.size - len(model.tokenizer.unused_ids)
    for event in chosen:
        # One logit of 50 among zeros; rows that stand for nothing do not count.
        assert event.logprob == pytest.approx(-math.log1p((usable - 1) * math.exp(-50)), abs=1e-15)
        assert len(event.top) == logprobs
        assert event.top[:1] == ((event.id, event.logprob),)[:logprobs]
    reply = model.chat("Count.", logprobs=logprobs)
    assert reply.tokens == tuple(chosen)
    assert model.chat("Count.").tokens == ()
    assert isinstance(events[-1], Finished)
    assert isinstance(events[0], Chosen)
    assert any(isinstance(event, Reasoning) for event in events)


class Guided(Scripted):
    """Says what it is told to, but is open to other ideas: every other token has some probability."""

    def logits(self, rows):
        return torch.stack([self._row(int(place)) for place in rows[:, 0]])

    def _row(self, place):
        logits = torch.from_numpy(np.random.default_rng(place).standard_normal(self.config.V).astype(np.float32))
        if place < len(self.script):
            logits[self.script[place]] += 20
        return logits


def guided_model(text):
    return scripted_model(text, kind=Guided)


SCHEMA = {"type": "object", "properties": {"n": {"enum": [7, 8]}}, "required": ["n"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, seed=4)], ids=["greedy", "seeded"])
def test_an_answer_has_the_form_that_was_asked_for(sampling) -> None:
    for ask in ({"thinking": False}, {"thinking": True}):
        model = guided_model('I {"n": 9} think.</think>\n\nWell, {"n": 9}' if ask["thinking"] else 'Well, {"n": 9}')
        model.sampling = sampling
        reply = model.chat("Hi", grammar=FORM, **ask)
        assert json.loads(reply.text)["n"] in {7, 8}
        assert reply.finish_reason == "stop"
        assert reply.reasoning == ('I {"n": 9} think.' if ask["thinking"] else "")
    model = guided_model("Well")
    assert json.loads(model.complete("Say", grammar=FORM).text)["n"] in {7, 8}
    assert model.complete("Say", grammar={"type": "text"}).text.startswith("Well")
    assert model.complete("Say", grammar={"type": "regex", "regex": "[xyz]{3}"}).text.strip("xyz") == ""


def test_with_tools_an_answer_has_the_form_or_is_a_call() -> None:
    for text, called in (('So.</think>\n\nWell, {"n": 9}', False), (f"So.</think>\n\n{CALL}", True)):
        reply = guided_model(text).chat("Hi", grammar=FORM, tools=[WEATHER])
        assert bool(reply.tool_calls) == called
        assert reply.text == "" if called else json.loads(reply.text)["n"] in {7, 8}


@pytest.mark.parametrize(("options", "wrong"), [
    ({"grammar": {"type": "regex", "regex": "("}}, r"^the grammar \(regex\) cannot be used"),
    ({"grammar": "json"}, "^grammar must be an object"),
    ({"logprobs": 21}, "^logprobs must be an integer from 0 to 20"),
    ({"logit_bias": {10**6: 1}}, "^logit_bias: token id 1000000 is outside the vocabulary"),
    ({"frequency_penalty": 3}, "^frequency_penalty must be a number from -2 to 2"),
], ids=str)  # fmt: skip
def test_bad_requests_are_refused_before_the_stream_begins(options, wrong) -> None:
    with pytest.raises(RequestError, match=wrong):
        scripted_model("x").stream_chat("Hi", **options)


def test_the_model_in_the_box_answers_in_form_with_and_without_drafts() -> None:
    model = strata.load()
    form = {"type": "regex", "regex": "(One|Two|Three) [a-z]{3,9} and [0-9]{2}[.]"}
    for more in ({}, {"temperature": 1.0, "seed": 3, "repetition_penalty": 1.2, "logit_bias": {70: 3.0}}):
        plain, *others = (
            model.chat("Count from 7 to 12.", grammar=form, logprobs=2, drafts=drafts, max_tokens=120, **more)
            for drafts in (0, 1, 4, 7)
        )
        assert all(other == plain for other in others)
        assert plain.finish_reason == "stop"
        assert plain.text.endswith(".")
    counted = model.chat("Count from 7 to 12.", thinking=False, stop="10,")
    assert counted.text == "7, 8, 9, "
