"""Tool calls: three tools named VERB_NOUN, one of them right, its arguments in the request."""

import json
import random
from typing import Any

from pebble.data.dialogue import Message
from pebble.data.words import CITIES, NAMES, NOUNS, held_out

VERBS = "get set find open close start stop delete create send update check list show book read".split()  # noqa: SIM905
# What can be acted on: (noun, words that carry the argument, parameter, kind of value).
THINGS = (
    ("weather", "in {x}", "city", "city"),
    ("time", "in {x}", "city", "city"),
    ("map", "of {x}", "city", "city"),
    ("hotel", "in {x}", "city", "city"),
    ("flight", "to {x}", "city", "city"),
    ("train", "to {x}", "city", "city"),
    ("alarm", "for {x} o'clock", "hour", "int"),
    ("timer", "for {x} minutes", "minutes", "int"),
    ("room", "number {x}", "number", "int"),
    ("page", "number {x}", "number", "int"),
    ("order", "number {x}", "number", "int"),
    ("ticket", "number {x}", "number", "int"),
    ("light", "with level {x}", "level", "int"),
    ("message", "for {x}", "name", "name"),
    ("mail", "for {x}", "name", "name"),
    ("meeting", "with {x}", "name", "name"),
    ("contact", "named {x}", "name", "name"),
    ("account", "of {x}", "name", "name"),
    ("invoice", "of {x}", "name", "name"),
    ("file", "named {x}", "name", "file"),
    ("folder", "named {x}", "name", "file"),
    ("report", "named {x}", "name", "file"),
    ("song", "named {x}", "title", "word"),
    ("note", "named {x}", "title", "word"),
    ("recipe", "for {x}", "title", "word"),
    ("product", "named {x}", "title", "word"),
    ("door", "of the {x}", "place", "word"),
    ("window", "of the {x}", "place", "word"),
    ("camera", "of the {x}", "place", "word"),
    ("event", "on day {x}", "day", "int"),
)
# Other names a parameter may have: which one counts is read from the declaration, not remembered.
_SYNONYMS = {
    "city": ("city", "city", "place", "location", "town"),
    "name": ("name", "name", "person", "who", "key"),
    "title": ("title", "title", "name", "subject"),
    "number": ("number", "number", "id", "value"),
}
_ASKS = ("{ask}", "{ask}.", "Please {low}.", "Can you {low}?", "{low}", "I want you to {low}.")
_RESULTS = (
    "ok",
    "done",
    "not found",
    "{n}",
    "{n} degrees",
    "{w} {n}",
    '{{"status": "ok", "value": {n}}}',
    '{{"{w}": {n}}}',
    "{w}, {v}, {n}",
    "error {n}",
    "saved as {w}-{n}",
)


def pair_held_out(verb: str, noun: str) -> bool:
    """Whether a verb and noun are the right answer in evaluation only."""
    return held_out("tool", f"{verb}_{noun}")


def schema(verb: str, thing: tuple[str, str, str, str], *, described: bool = False) -> dict[str, Any]:
    """A tool as an API would declare it; ``described`` adds a description of its parameter."""
    noun, _, parameter, kind = thing
    value = {"type": "integer" if kind == "int" else "string"}
    if described:
        value["description"] = f"The {parameter}."
    return {
        "type": "function",
        "function": {
            "name": f"{verb}_{noun}",
            "description": f"{verb.capitalize()} the {noun}.",
            "parameters": {
                "type": "object",
                "properties": {parameter: value},
                "required": [parameter],
            },
        },
    }


def _value(rng: random.Random, kind: str) -> Any:
    if kind == "int":
        return rng.randint(1, 99)
    if kind == "file":
        return f"{rng.choice(NOUNS)}.{rng.choice(['txt', 'pdf', 'csv', 'py'])}"
    return rng.choice({"city": CITIES, "name": NAMES, "word": NOUNS}[kind])


def _renamed(rng: random.Random, thing: tuple[str, str, str, str]) -> tuple[str, str, str, str]:
    noun, words, parameter, kind = thing
    return noun, words, rng.choice(_SYNONYMS.get(parameter, (parameter,))), kind


def toolbox(rng: random.Random, verb: str, thing: tuple[str, str, str, str], count: int = 3) -> list[dict[str, Any]]:
    """The right tool among distractors, 40% of which share its verb or its noun."""
    pairs = {(verb, thing[0]): thing}
    while len(pairs) < count:
        other, what = rng.choice(VERBS), _renamed(rng, rng.choice(THINGS))
        kind = rng.random()
        if kind < 0.2:
            other = verb
        elif kind < 0.4:
            what = thing
        pairs.setdefault((other, what[0]), what)
    described = rng.random() < 0.25
    tools = [schema(v, what, described=described) for (v, _), what in pairs.items()]
    rng.shuffle(tools)
    return tools


def request(rng: random.Random, *, unseen: bool, ask: str | None = None) -> tuple[list[Message], list[dict[str, Any]]]:
    """A request, the call that serves it, and the tools on offer."""
    while True:
        verb, thing = rng.choice(VERBS), _renamed(rng, rng.choice(THINGS))
        if pair_held_out(verb, thing[0]) == unseen:
            break
    noun, words, parameter, kind = thing
    value = _value(rng, kind)
    low = f"{verb} the {noun} " + words.format(x=value)
    text = (ask or rng.choice(_ASKS)).format(ask=low.capitalize()[:1] + low[1:], low=low)
    name = f"{verb}_{noun}"
    think = f"The tool {name} fits. Its {parameter} is {value}."
    return [
        Message("user", text),
        Message("assistant", "", think=think, call=(name, {parameter: value})),
    ], toolbox(rng, verb, thing)


def result(rng: random.Random, name: str) -> list[Message]:
    """What a tool may return, and the answer that quotes it."""
    text = rng.choice(_RESULTS).format(n=rng.randint(0, 999), w=rng.choice(NOUNS), v=rng.choice(NAMES))
    if rng.random() < 0.2:
        text = json.dumps({rng.choice(NOUNS): rng.choice(NAMES), rng.choice(NOUNS): rng.randint(0, 99)})
    return [
        Message("tool", text),
        Message("assistant", f"The tool {name} says: {text}", think="I report the result."),
    ]


def draw(rng: random.Random) -> tuple[list[Message], list[dict[str, Any]]]:
    """A training request; half of them go on with the tool's result and an answer that quotes it."""
    messages, tools = request(rng, unseen=False)
    call = messages[-1].call
    if call and rng.random() < 0.5:
        messages += result(rng, call[0])
    return messages, tools


def test(rng: random.Random) -> tuple[list[Message], list[dict[str, Any]]]:
    """A held-out request: a verb and noun that never were the right answer in training."""
    return request(rng, unseen=True, ask="{ask}.")
