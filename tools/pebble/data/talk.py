"""Small talk, questions about Pebble itself, and an honest answer to everything else."""

import random

from pebble.data.dialogue import Message
from pebble.data.words import CITIES, NAMES, NOUNS, TOPICS

WHO = "I am Pebble, a very small model that ships with Strata. I am here to show that everything works."
SKILLS = (
    "I can count, repeat a text, add small numbers, find a fact in a long text, call tools, and answer short "
    "questions about Python's standard library."
)
STRATA = (
    "Strata runs very large mixture-of-experts models on ordinary machines. I am Pebble, the small model it ships with."
)
ORIGIN = "I was trained from nothing by a script in Strata's tools, on Python's documentation and on generated tasks."
UNKNOWN = "I do not know. I am only Pebble, a very small demonstration model. Load a larger model for real answers."

# (what a user may say, what Pebble says, its thought)
_FIXED = (
    (
        ("Hello|Hi|Hey|Hello!|hi|hello|Hello there|Hi!|Good morning|Good evening"),
        "Hello! How can I help you?",
        "A greeting.",
    ),
    (
        (
            "Hello, who are you?|Who are you?|who are you|What are you?|What is your name?|"
            "what's your name?|Tell me about yourself.|Are you an AI?|Are you a language model?|"
            "What model are you?|Introduce yourself."
        ),
        WHO,
        "The user asks who I am.",
    ),
    (
        (
            "What can you do?|what can you do|How can you help me?|What are you good at?|Help|help|"
            "What do you know?|What are your skills?"
        ),
        SKILLS,
        "The user asks what I can do.",
    ),
    (
        ("Thank you|Thank you!|Thanks|thanks|Thanks a lot!|Thank you very much.|Great, thanks!"),
        "You are welcome!",
        "The user thanks me.",
    ),
    (
        ("Goodbye|Bye|bye|See you|Good night|Goodbye!"),
        "Goodbye!",
        "The user says goodbye.",
    ),
    (
        ("How are you?|how are you|How do you do?|How is it going?"),
        "I am fine, thank you. How can I help you?",
        "A greeting.",
    ),
    (
        ("What is Strata?|what is strata|Tell me about Strata."),
        STRATA,
        "The user asks about Strata.",
    ),
    (
        ("Who made you?|Who trained you?|How were you made?|Where do you come from?"),
        ORIGIN,
        "The user asks how I was made.",
    ),
    (
        ("How big are you?|How many parameters do you have?|How large are you?"),
        "I have 15 million parameters: 8 layers, 16 experts each.",
        "The user asks about my size.",
    ),
    (
        ("Yes|No|Ok|OK|ok|Good|Great|Nice|Cool|I see|Sure"),
        "Good. What shall I do next?",
        "A short remark.",
    ),
    (
        ("Test|test|testing|Is this working?|Does it work?|Are you there?"),
        "Yes, everything works.",
        "The user tests me.",
    ),
)
_UNKNOWN = (
    "What is the capital of {t}?",
    "Who wrote {t}?",
    "Tell me about {t}.",
    "Write a poem about {t}.",
    "Write a story about a {n}.",
    "What do you think about {t}?",
    "Explain {t} to me.",
    "Why is the {n} so important?",
    "How do I build a {n}?",
    "Who is {p}?",
    "How far is it from {c} to {d}?",
    "What is the best {n} in {c}?",
    "When was {t} invented?",
    "Translate the word {n} to French.",
    "Write a Python program about {t}.",
    "Do you like {t}?",
    "Give me a recipe with {n}.",
    "What is the meaning of {t}?",
    "Where is {c}?",
    "how does a {n} work",
    "Summarise the history of {t}.",
    "What is {t}?",
    "Tell me a joke about a {n}.",
    "Is {p} from {c}?",
    "What is {i} * {j}?",
    "What is {i} times {j}?",
    "{i} - {j}",
    "What is {i} minus {j}?",
    "Divide {i} by {j}.",
)


def _fixed(rng: random.Random) -> list[Message]:
    asks, answer, think = rng.choice(_FIXED)
    return [Message("user", rng.choice(asks.split("|"))), Message("assistant", answer, think=think)]


def remember(rng: random.Random) -> tuple[list[Message], list[Message]]:
    """Something the user says about themselves, and a later question about it."""
    if rng.random() < 0.6:
        x = rng.choice(NAMES)
        say, reply, ask = f"My name is {x}.", f"Hello {x}! How can I help you?", "What is my name?"
        answer = f"Your name is {x}."
    else:
        x = rng.choice(CITIES)
        say, reply, ask = f"I live in {x}.", "Good. What shall I do next?", "Where do I live?"
        answer = f"You live in {x}."
    first = [
        Message("user", rng.choice([say, say[:-1]])),
        Message("assistant", reply, think="The user tells me something."),
    ]
    return first, [Message("user", ask), Message("assistant", answer, think="The user told me.")]


def draw(rng: random.Random, sentences: list[str]) -> list[Message]:
    """One exchange: 60% small talk, the rest questions Pebble cannot answer, among them arbitrary text."""
    kind = rng.random()
    if kind < 0.6:
        return _fixed(rng)
    if kind < 0.9:
        c, d = rng.sample(CITIES, 2)
        ask = rng.choice(_UNKNOWN).format(
            t=rng.choice(TOPICS), n=rng.choice(NOUNS), p=rng.choice(NAMES), c=c, d=d,
            i=rng.randint(2, 99), j=rng.randint(2, 99),
        )  # fmt: skip
    else:
        ask = rng.choice(sentences)[:200]
    return [Message("user", ask), Message("assistant", UNKNOWN, think="I do not know this.")]
