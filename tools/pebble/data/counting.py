"""Counting from A to B: the first number and the stop are the only places where anything can go wrong late."""

import random

from pebble.data.dialogue import Message
from pebble.data.words import held_out

_ASKS = (
    "Count from {a} to {b}.",
    "Count from {a} to {b}",
    "count from {a} to {b}",
    "Please count from {a} to {b}.",
    "Count up from {a} to {b}, please.",
    "Can you count from {a} to {b}?",
    "List the numbers from {a} to {b}.",
    "Write all numbers from {a} to {b}.",
    "Count {a} to {b}.",
    "count {a} to {b}",
    "Please count from {a} up to {b}.",
    "Could you count from {a} to {b} for me?",
)
_DOWN = ("Count down from {b} to {a}.", "count down from {b} to {a}", "Please count backwards from {b} to {a}.")
_FROM_ONE = ("Count to {b}.", "count to {b}", "Please count to {b}.", "Can you count to {b}?")
HIGHEST = 1000  # first numbers are below this


def start_held_out(a: int) -> bool:
    """Whether counts from ``a`` appear in evaluation only. Counts from 0 and 1 are always trained."""
    return a > 1 and held_out("count", str(a))


def exchange(a: int, b: int, ask: str) -> list[Message]:
    """The question and its one right answer."""
    return [
        Message("user", ask.format(a=a, b=b), weight=0.1),
        Message(
            "assistant",
            ", ".join(map(str, range(a, b + 1))),
            think=f"I count up from {a} and stop at {b}.",
            emphasis=((0, len(str(a)), 5.0),),
            stop=10.0,
        ),
    ]


def down(a: int, b: int, ask: str) -> list[Message]:
    """The same backwards, from ``b`` to ``a``."""
    return [
        Message("user", ask.format(a=a, b=b), weight=0.1),
        Message(
            "assistant",
            ", ".join(map(str, range(b, a - 1, -1))),
            think=f"I count down from {b} and stop at {a}.",
            emphasis=((0, len(str(b)), 5.0),),
            stop=10.0,
        ),
    ]


def draw(rng: random.Random, fewest: int, most: int) -> list[Message]:
    """A training count of ``fewest`` to ``most`` numbers, now and then a short one backwards."""
    if rng.random() < 0.06:
        a = rng.choice([0, 1, rng.randrange(90)])
        return down(a, a + rng.randint(4, 19), rng.choice(_DOWN))
    if rng.random() < 0.15:
        a, asks = 1, _FROM_ONE + _ASKS
    else:
        a, asks = rng.randrange(HIGHEST), _ASKS
        while start_held_out(a):
            a = rng.randrange(HIGHEST)
    if rng.random() < 0.2:
        a = rng.choice([0, 1, 5, 10, 20, 50, 100])
        a = 0 if start_held_out(a) else a
        asks = _ASKS
    return exchange(a, a + rng.randint(fewest, most) - 1, rng.choice(asks))


def test(rng: random.Random, count: int) -> list[Message]:
    """A held-out count of exactly ``count`` numbers."""
    a = rng.randrange(2, HIGHEST)
    while not start_held_out(a):
        a = rng.randrange(2, HIGHEST)
    return exchange(a, a + count - 1, _ASKS[0])
