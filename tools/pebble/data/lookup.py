"""Facts hidden in prose: "The code of the ADJ NOUN is NNNNN." Keys are seen in training, values never repeat."""

import random

from pebble.data.dialogue import Message
from pebble.data.words import ADJECTIVES, NOUNS

ATTRIBUTES = ("code", "code", "code", "number", "password")
_ASKS = ("What is the {what} of the {who}?", "what is the {what} of the {who}?", "Tell me the {what} of the {who}.")


def fact(what: str, who: str, value: str) -> str:
    """The sentence that states a fact, and answers for it."""
    return f"The {what} of the {who} is {value}."


def filler(rng: random.Random, sentences: list[str], characters: int) -> list[str]:
    """Consecutive sentences of the corpus, from a random place on, of about so many characters together."""
    at = rng.randrange(len(sentences))
    chosen: list[str] = []
    while characters > 0:
        sentence = sentences[at % len(sentences)]
        chosen.append(sentence[: max(characters, 40)])
        characters -= len(sentence) + 1
        at += 1
    return chosen


def exchange(
    rng: random.Random, prose: list[str], places: list[float], asked: int, ask: str = _ASKS[0]
) -> list[Message]:
    """Facts at relative ``places`` of the prose; the question is about fact ``asked``."""
    keys: set[str] = set()
    while len(keys) < len(places):
        keys.add(f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}")
    names = sorted(keys)
    rng.shuffle(names)
    whats = [rng.choice(ATTRIBUTES) for _ in names]
    values = ["".join(rng.choices("0123456789", k=5)) for _ in names]
    facts = [fact(*x) for x in zip(whats, names, values, strict=True)]
    text = list(prose)
    lengths = [len(s) for s in text]
    for place, sentence in sorted(zip(places, facts, strict=True), reverse=True):
        goal, index, passed = place * sum(lengths), 0, 0
        while index < len(lengths) and passed + lengths[index] / 2 < goal:
            passed += lengths[index]
            index += 1
        text.insert(index, sentence)
    answer = facts[asked]
    question = ask.format(what=whats[asked], who=names[asked])
    value = answer.index(values[asked])
    return [
        Message("user", " ".join(text) + "\n\n" + question, weight=0.1 if len(prose) < 40 else 0.0),
        Message("assistant", answer, think="I look for it in the text.", emphasis=((value, value + 5, 2.0),)),
    ]


def draw(rng: random.Random, sentences: list[str], characters: int) -> list[Message]:
    """A training lookup: half with one fact, the rest with up to twelve."""
    kind = rng.random()
    count = 1 if kind < 0.5 else rng.randint(2, 4) if kind < 0.8 else rng.randint(5, 12)
    count = min(count, max(1, characters // 150))
    prose = filler(rng, sentences, max(60, characters - 45 * count))
    places = [rng.random() for _ in range(count)]
    return exchange(rng, prose, places, rng.randrange(count), rng.choice(_ASKS))


def test(rng: random.Random, sentences: list[str], characters: int, places: list[float]) -> list[Message]:
    """A lookup in held-out prose; the question is about the first place."""
    return exchange(rng, filler(rng, sentences, characters - 45 * len(places)), places, 0)
