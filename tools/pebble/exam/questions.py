"""The held-out questions of every ability, a function of a seed alone."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from pebble.data import copying, counting, lookup, sums, tools
from pebble.data.dialogue import Conversation
from pebble.data.mixture import LONG, SHORT, Mixture
from pebble.data.stock import Stock

Make = Callable[[random.Random], Conversation]


@dataclass(frozen=True, slots=True)
class Ability:
    """A name, the room its documents need, and a maker of one question with its one right answer."""

    name: str
    length: int
    make: Make
    threshold: float | None = None  # share that must be exact
    ceiling: float | None = None  # for controls: share that must not be exceeded
    choose: str = "indexer"


def _count(numbers: int) -> Make:
    return lambda rng: Conversation(counting.test(rng, numbers), thinking=False)


def _fitting(mixture: Mixture, rng: random.Random, make: Callable[[int], Conversation]) -> Conversation:
    """The longest version of a question that fits a long row."""
    characters = 6600
    while True:
        state = rng.getstate()
        talk = make(characters)
        if len(mixture.encode(talk)[0]) <= LONG:
            return talk
        rng.setstate(state)
        characters -= 60


def abilities(stock: Stock) -> list[Ability]:
    """Everything with a threshold, and the controls."""
    mixture = Mixture(stock)

    def find(places: list[float]) -> Make:
        def make(rng: random.Random) -> Conversation:
            return _fitting(
                mixture,
                rng,
                lambda n: Conversation(lookup.test(rng, stock.held_out_sentences, n, places), thinking=False),
            )

        return make

    def several(rng: random.Random) -> Conversation:
        places = [rng.random() for _ in range(rng.randint(2, 4))]
        return find(places)(rng)

    def tool(rng: random.Random) -> Conversation:
        messages, offered = tools.test(rng)
        return Conversation(messages, offered, thinking=False)

    def copy(rng: random.Random) -> Conversation:
        return Conversation(copying.test(rng, stock.words, 64), thinking=False)

    def thinking(make: Make) -> Make:
        return lambda rng: replace(make(rng), thinking=True)

    def add(rng: random.Random) -> Conversation:
        return Conversation(sums.test(rng), thinking=False)

    return [
        Ability("count 20 numbers", SHORT, _count(20), 0.95),
        Ability("count 20 numbers, thinking", SHORT, thinking(_count(20)), 0.95),
        Ability("count 200 numbers", LONG, _count(200), 0.95),
        Ability("copy 64 random ids", SHORT, copy, 0.95),
        Ability("copy 64 random ids, thinking", SHORT, thinking(copy), 0.95),
        Ability("two-digit addition", SHORT, add, 0.95),
        Ability("two-digit addition, thinking", SHORT, thinking(add), 0.95),
        Ability("tool call, unseen tools", SHORT, tool, 0.95),
        Ability("tool call, unseen tools, thinking", SHORT, thinking(tool), 0.95),
        Ability("one fact at 10% of 2,000 tokens", LONG, find([0.1]), 0.90),
        Ability("one fact at 50% of 2,000 tokens", LONG, find([0.5]), 0.90),
        Ability("one fact at 90% of 2,000 tokens", LONG, find([0.9]), 0.90),
        Ability("two to four facts in 2,000 tokens", LONG, several, 0.80),
        Ability("control: one fact at 50%, random blocks", LONG, find([0.5]), ceiling=0.30, choose="random"),
    ]


def questions(ability: Ability, count: int, seed: int) -> Iterator[Conversation]:
    """``count`` questions of one ability."""
    for i in range(count):
        yield ability.make(random.Random(f"exam:{seed}:{ability.name}:{i}"))
