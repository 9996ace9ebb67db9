"""How the next token is chosen from the model's predictions."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from strata.errors import RequestError

SEEDS = 1 << 64
"""Seeds count modulo this."""

COUNTS = 1 << 62
"""A count of tokens above this counts as this; no message could hold every integer."""

FORBIDDEN = -100.0
"""A bias of this much forbids the token; every other bias is added to its logit."""

_NUMBERS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, math.inf),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "repetition_penalty": (0.01, 100.0),
    "frequency_penalty": (-2.0, 2.0),
    "presence_penalty": (-2.0, 2.0),
}
"""Least and greatest value by field."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling settings; docs/sampling.md has every formula.

    They work in this order: repetition_penalty, frequency_penalty with presence_penalty, logit_bias, then what a
    constraint allows, temperature, top_k, top_p, min_p, typical_p. The order of the filters is that of transformers.

    The edges mean: temperature 0 is greedy, which takes the likeliest after penalties, bias and constraint, and then
    no filter matters; top_k 0 or -1, top_p 1, min_p 0 and typical_p 1 are off; top_k above the vocabulary keeps all of
    it; top_k 1 and top_p 0 keep the likeliest token alone, so they equal greedy at any temperature; min_p 1 keeps only
    tokens as likely as the likeliest; typical_p 0 keeps the most typical token alone.

    Attributes:
        temperature: logits are divided by it, at least 0.
        top_k: keep this many of the likeliest tokens; equal ones by lower id.
        top_p: of those, keep the fewest whose probabilities add up to it, from 0 to 1.
        min_p: of those, keep tokens at least this many times as likely as the likeliest, from 0 to 1.
        seed: any integer, taken modulo 2**64. One seed gives one text.
        typical_p: of those, keep the fewest of the most typical tokens (information nearest to the entropy; equal ones
            by lower id) whose probabilities add up to it, from 0 to 1.
        repetition_penalty: positive logits of tokens in the prompt or the answer are divided by it, negative ones
            multiplied; from 0.01 to 100, 1 is off.
        frequency_penalty: taken from a logit for each time the token is in the answer, from -2 to 2, 0 is off.
        presence_penalty: taken from a logit once if the token is in the answer, from -2 to 2, 0 is off.
        penalty_window: how many of the last tokens, prompt and answer together, the three penalties look at;
            -1 is all, 0 none.
        logit_bias: added to logits by token id, from -100 to 100; -100 forbids the token altogether. Given as a mapping
            or as pairs, kept as pairs by rising id.

    Raises:
        RequestError: a value is of the wrong type or out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = -1
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Check every value, and bring equal meanings to one form."""
        for name, (least, most) in _NUMBERS.items():
            object.__setattr__(self, name, _number(name, getattr(self, name), least, most))
        top_k = _integer("top_k", self.top_k)
        if top_k < -1:
            raise RequestError(f"top_k must be at least 1, or 0 or -1 for off, not {top_k}")
        window = _integer("penalty_window", self.penalty_window)
        if window < -1:
            raise RequestError(f"penalty_window must be at least 0, or -1 for all tokens, not {window}")
        for name, value in (
            ("top_k", min(max(0, top_k), COUNTS)),
            ("penalty_window", min(window, COUNTS)),
            ("seed", _integer("seed", self.seed) % SEEDS),
            ("logit_bias", _bias(self.logit_bias)),
        ):
            object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is taken without a draw."""
        return self.temperature == 0

    @property
    def filters(self) -> bool:
        """Whether some tokens are left out of the draw."""
        return self.top_k > 0 or self.top_p < 1 or self.min_p > 0 or self.typical_p < 1

    @property
    def penalises(self) -> bool:
        """Whether tokens that were there before are treated differently."""
        off = self.repetition_penalty == 1 and self.frequency_penalty == 0 and self.presence_penalty == 0
        return not off and self.penalty_window != 0

    @property
    def biases(self) -> tuple[tuple[int, float], ...]:
        """The logit bias as pairs of id and bias, by rising id."""
        assert isinstance(self.logit_bias, tuple)
        return self.logit_bias


def _integer(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise RequestError(f"{name} must be an integer, not {value!r}")
    return int(value)


def _number(name: str, value: Any, least: float, most: float) -> float:
    allowed = f"a number from {least:g} to {most:g}" if math.isfinite(most) else "a finite number of at least 0"
    if isinstance(value, bool) or not isinstance(value, Real):
        raise RequestError(f"{name} must be {allowed}, not {value!r}")
    try:
        number = float(value)
    except OverflowError:  # an integer too large for a float
        number = math.inf
    if not (least <= number <= most and math.isfinite(number)):
        raise RequestError(f"{name} must be {allowed}, not {value}")
    return number


def _bias(value: Any) -> tuple[tuple[int, float], ...]:
    pairs = list(value.items()) if isinstance(value, Mapping) else value
    shaped = isinstance(pairs, Iterable) and not isinstance(pairs, str | bytes)
    pairs = list(pairs) if shaped else [None]
    if not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise RequestError(f"logit_bias must be a mapping of token ids to numbers, not {value!r}")
    found: dict[int, float] = {}
    for token, bias in pairs:
        number = _integer("every token id of logit_bias", token)
        if number < 0 or number in found:
            raise RequestError(f"logit_bias has the token id {number} {'twice' if number in found else 'below 0'}")
        found[number] = _number(f"logit_bias[{number}]", bias, -100.0, 100.0)
    return tuple(sorted(found.items()))
