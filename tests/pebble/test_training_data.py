"""Training documents: repeatable, correct, and never from what evaluation asks."""

import random
import re

import numpy as np
import pytest

from pebble.data import copying, counting, lookup, sums, tools
from pebble.data.dialogue import Conversation
from pebble.data.mixture import LONG, SHORT, Mixture
from pebble.data.stock import load
from pebble.data.vocabulary import ENDOFTEXT, IM_END
from pebble.data.workers import Feed
from pebble.exam.questions import abilities, questions
from support.pebble_stock import small_stock


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_stock(tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def mixture(folder):
    return Mixture(load(folder))


@pytest.mark.parametrize("length", [SHORT, LONG])
def test_a_batch_is_a_function_of_its_arguments(mixture, length):
    first, again = (mixture.batch(1, 5, 2, length, 0.5) for _ in range(2))
    other = mixture.batch(1, 6, 2, length, 0.5)
    assert first[0].shape == (2, length + 1)
    assert (first[0] == again[0]).all()
    assert (first[1] == again[1]).all()
    assert (first[0] != other[0]).any()


def test_processes_give_the_batches_this_process_would(folder):
    one, two = Feed(folder, 3, 1), Feed(folder, 3, 0)
    for feed in (one, two):
        for index in range(3):
            feed.ask(index, 1, SHORT, 0.2)
    for _ in range(3):
        (a, wa), (b, wb) = one.take(), two.take()
        assert (a == b).all()
        assert (wa == wb).all()
    one.close()


def test_held_out_counts_sums_and_tools_never_occur_in_training():
    rng = random.Random(0)
    for _ in range(3000):
        a, b = map(int, re.findall(r"\d+", sums.draw(rng)[0].content))
        assert not sums.sum_held_out(a, b)
        call = tools.request(rng, unseen=False)[0][1].call
        assert not tools.pair_held_out(*call[0].split("_"))
        asked, answer = counting.draw(rng, 5, 9)
        first, second = (int(x) for x in answer.content.split(", ")[:2])
        if second > first and "own" not in asked.content:
            assert not counting.start_held_out(first)


def test_evaluation_asks_only_what_was_held_out():
    rng = random.Random(1)
    for _ in range(300):
        a, b = map(int, re.findall(r"\d+", sums.test(rng)[0].content))
        assert sums.sum_held_out(a, b)
        call = tools.test(rng)[0][1].call
        assert tools.pair_held_out(*call[0].split("_"))
        assert counting.start_held_out(int(counting.test(rng, 20)[1].content.split(",")[0]))


def test_answers_are_right():
    rng = random.Random(2)
    for _ in range(300):
        question, answer = sums.draw(rng)
        a, b = map(int, re.findall(r"\d+", question.content))
        assert answer.content == f"{a} + {b} = {a + b}"
        assert answer.think.endswith(f"= {int(str(a + b)[: len(answer.think.rsplit('= ', 1)[1]) - 1])}.")
        question, answer = lookup.draw(rng, ["A first sentence.", "And a second one."], 900)
        assert answer.content in question.content
        messages, offered = tools.draw(rng)
        name, arguments = messages[1].call
        (schema,) = [t["function"]["parameters"] for t in offered if t["function"]["name"] == name]
        assert set(arguments) == set(schema["required"])
        (value,) = arguments.values()
        assert str(value) in messages[0].content
        assert isinstance(value, int) == (next(iter(schema["properties"].values()))["type"] == "integer")


def test_working_carries():
    assert sums.working(47, 85) == "7 + 5 = 12, write 2, carry 1. 4 + 8 + 1 = 13."
    assert sums.working(5, 4) == "5 + 4 = 9."


@pytest.mark.parametrize("thinking", [True, False])
def test_weights_fall_on_what_the_assistant_writes(mixture, thinking):
    talk = Conversation(counting.exchange(3, 12, "Count from {a} to {b}."), thinking=thinking)
    ids, weights = mixture.encode(talk)
    tokenizer = mixture.stock.tokenizer
    said = tokenizer.decode([int(i) for i in ids[weights >= 1]], skip_special_tokens=False)
    reasoning = "I count up from 3 and stop at 12.\n</think>\n\n" if thinking else ""
    assert said == reasoning + "3, 4, 5, 6, 7, 8, 9, 10, 11, 12<|im_end|>"
    assert weights[list(ids).index(IM_END, int(np.nonzero(weights >= 1)[0][0]))] == 10
    assert (ids[-1], weights[-1]) == (ENDOFTEXT, 0)
    assert weights[weights == 5].size == 1, "the first number weighs more"


def test_copies_repeat_their_text():
    question, answer = copying.test(random.Random(0), [" the", " file"], 64)
    assert question.content.endswith(answer.content)
    assert len(answer.content.split()) == 64


def test_every_ability_has_questions_that_fit(mixture):
    for ability in abilities(mixture.stock):
        (talk,) = questions(ability, 1, 0)
        ids, weights = mixture.encode(talk)
        assert len(ids) <= ability.length
        assert weights.max() >= 1
        if "2,000" in ability.name:
            assert len(ids) > 1500
