"""Copying: random vocabulary entries, words and characters, repeated exactly."""

import random

from pebble.data.dialogue import Message
from pebble.data.words import ADJECTIVES, CITIES, NAMES, NOUNS

_ASKS = (
    "Repeat exactly: {x}",
    "Repeat this text: {x}",
    "Copy this: {x}",
    "repeat: {x}",
    "Please repeat the following text exactly.\n\n{x}",
    'Say "{x}"',
    "Repeat after me: {x}",
    "Copy the following words:\n{x}",
)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"


def exchange(text: str, ask: str) -> list[Message]:
    """The request and the text itself as its answer."""
    return [
        Message("user", ask.format(x=text)),
        Message("assistant", text, think="I repeat the text exactly.", stop=3.0),
    ]


def _text(rng: random.Random, entries: list[str], fewest: int, most: int) -> str:
    count = rng.randint(fewest, most)
    kind = rng.random()
    if kind < 0.6:
        return "".join(rng.choices(entries, k=count)).strip()
    if kind < 0.85:
        pool = rng.choice([ADJECTIVES, NOUNS, NAMES, CITIES, ADJECTIVES + NOUNS])
        return rng.choice([" ", ", "]).join(rng.choices(pool, k=max(1, count // 2)))
    groups = ("".join(rng.choices(_LETTERS, k=rng.randint(1, 8))) for _ in range(max(1, count // 6)))
    return rng.choice([" ", "-", ", "]).join(groups)


def draw(rng: random.Random, entries: list[str], fewest: int, most: int) -> list[Message]:
    """A training copy of roughly ``fewest`` to ``most`` tokens. ``entries`` are words with a leading space."""
    return exchange(_text(rng, entries, fewest, most), rng.choice(_ASKS))


def test(rng: random.Random, entries: list[str], count: int) -> list[Message]:
    """``count`` random vocabulary entries. No two are alike by chance, so nothing needs holding out."""
    return exchange("".join(rng.choices(entries, k=count)).strip(), _ASKS[0])
