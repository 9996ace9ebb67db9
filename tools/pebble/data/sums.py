"""Addition of numbers with one to three digits; thinking works digit by digit, from the right, with a carry."""

import random

from pebble.data.dialogue import Message
from pebble.data.words import held_out

_ASKS = (
    "What is {a} + {b}?",
    "{a} + {b}",
    "{a} + {b} = ?",
    "{a}+{b}",
    "What is {a}+{b}?",
    "Add {a} and {b}.",
    "Please add {a} and {b}.",
    "How much is {a} plus {b}?",
    "what is {a} plus {b}",
    "Compute {a} + {b}.",
    "Calculate {a} + {b}.",
    "What's {a} + {b}?",
    "what is {a} + {b}?",
    "{a} plus {b}",
)


def sum_held_out(a: int, b: int) -> bool:
    """Whether ``a + b`` is for evaluation only. Sums of two digits are too few to hold any out."""
    return (a > 9 or b > 9) and held_out("sum", f"{a}+{b}")


def working(a: int, b: int) -> str:
    """The written method, one column at a time: as in 7 + 5 = 12, write 2, carry 1."""
    steps: list[str] = []
    carry = 0
    left, right = str(a)[::-1], str(b)[::-1]
    columns = max(len(left), len(right))
    for i in range(columns):
        x, y = int(left[i : i + 1] or 0), int(right[i : i + 1] or 0)
        total = x + y + carry
        text = f"{x} + {y}" + (" + 1" if carry else "") + f" = {total}"
        carry = total // 10
        if i < columns - 1:
            text += f", write {total % 10}, carry {carry}"
        steps.append(text + ".")
    return " ".join(steps)


def exchange(a: int, b: int, ask: str) -> list[Message]:
    """The question and the sum."""
    answer = f"{a} + {b} = {a + b}"
    at = answer.index("=") + 2
    return [
        Message("user", ask.format(a=a, b=b), weight=0.1),
        Message("assistant", answer, think=working(a, b), emphasis=((at, len(answer), 3.0),)),
    ]


def draw(rng: random.Random) -> list[Message]:
    """A training sum: 15% of one digit, 70% of two, the rest of up to three."""
    while True:
        kind = rng.random()
        low, high = (0, 9) if kind < 0.15 else (10, 99) if kind < 0.85 else (0, 999)
        a, b = rng.randint(low, high), rng.randint(low, high)
        if not sum_held_out(a, b):
            return exchange(a, b, rng.choice(_ASKS))


def test(rng: random.Random) -> list[Message]:
    """A held-out sum of two-digit numbers."""
    while True:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        if sum_held_out(a, b):
            return exchange(a, b, _ASKS[0])
