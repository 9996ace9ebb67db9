"""How the next token is chosen from the model's predictions."""

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from strata.errors import RequestError

SEEDS = 1 << 64
"""Seeds count modulo this."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings. The filters work in the order of the fields: temperature, top_k, top_p, min_p.

    The edges mean: temperature 0 is greedy, and then nothing else matters; top_k 0 or -1, top_p 1 and min_p 0 are
    off; top_k above the vocabulary keeps all of it; top_k 1 and top_p 0 keep the likeliest token alone, so they equal
    greedy at any temperature; min_p 1 keeps only tokens as likely as the likeliest.

    Attributes:
        temperature: logits are divided by it, at least 0.
        top_k: keep this many of the likeliest tokens; equal ones by lower id.
        top_p: of those, keep the fewest whose probabilities add up to it, from 0 to 1.
        min_p: of those, keep tokens at least this many times as likely as the likeliest, from 0 to 1.
        seed: any integer, taken modulo 2**64. One seed gives one text.

    Raises:
        RequestError: a value is of the wrong type or out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every value, and bring equal meanings to one form."""
        top_k = _integer("top_k", self.top_k)
        if top_k < -1:
            raise RequestError(f"top_k must be at least 1, or 0 or -1 for off, not {top_k}")
        for name, value in (
            ("temperature", _number("temperature", self.temperature, math.inf)),
            ("top_k", max(0, top_k)),
            ("top_p", _number("top_p", self.top_p, 1.0)),
            ("min_p", _number("min_p", self.min_p, 1.0)),
            ("seed", _integer("seed", self.seed) % SEEDS),
        ):
            object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken without a draw."""
        return self.temperature == 0


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise RequestError(f"{name} must be an integer, not {value!r}")
    return int(value)


def _number(name: str, value: Any, most: float) -> float:
    allowed = f"a number from 0 to {most:g}" if math.isfinite(most) else "a finite number of at least 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RequestError(f"{name} must be {allowed}, not {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer too large for a float
        number = math.inf
    if not (0 <= number <= most and math.isfinite(number)):
        raise RequestError(f"{name} must be {allowed}, not {value}")
    return number
