"""Sampling and limits in the fields of OpenAI and of those who have added to them."""

from typing import Any

from strata.server.errors import bad
from strata.server.fields import Fields, shown

_NAMES: dict[str, tuple[str, ...]] = {
    "repetition_penalty": ("repetition_penalty", "repeat_penalty"),
    "penalty_window": ("penalty_window", "repeat_last_n"),
}


def read_sampling(fields: Fields) -> dict[str, Any]:
    """How tokens are chosen; what is not named is left out. Ranges are checked where the values are used."""
    found: dict[str, Any] = {}
    for name in ("temperature", "top_p", "min_p", "typical_p", "frequency_penalty", "presence_penalty"):
        found[name] = fields.number(name)
    for name in ("top_k", "seed"):
        found[name] = fields.integer(name)
    for name, spellings in _NAMES.items():
        read = fields.integer if name == "penalty_window" else fields.number
        values = {spelling: value for spelling in spellings if (value := read(spelling)) is not None}
        if len(set(values.values())) > 1:
            raise bad(f"{' and '.join(values)} are the same and must not differ", name)
        found[name] = next(iter(values.values()), None)
    bias = fields.any("logit_bias")
    if bias is not None:
        found["logit_bias"] = _bias(bias)
    return {name: value for name, value in found.items() if value is not None}


def read_most(fields: Fields, *names: str) -> int | None:
    """The most tokens of an answer, the least of several limits; null, 0 and -1 are none."""
    limits = [value for name in names if (value := fields.integer(name, -1)) is not None and value > 0]
    return min(limits) if limits else None


MOST_BIASES = 1 << 16


def _bias(value: Any) -> dict[int, float]:
    if not isinstance(value, dict):
        raise bad(f"logit_bias must be an object of token ids and numbers, not {shown(value)}", "logit_bias")
    if len(value) > MOST_BIASES:
        raise bad(f"logit_bias has {len(value)} entries; {MOST_BIASES} are the most", "logit_bias")
    found: dict[int, float] = {}
    for key, bias in value.items():
        if not isinstance(key, str) or not key.isdecimal() or len(key) > 9 or str(int(key)) != key:
            raise bad(f"logit_bias: {shown(key)} is no token id", "logit_bias")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise bad(f"logit_bias[{key}] must be a number from -100 to 100, not {shown(bias)}", "logit_bias")
        found[int(key)] = float(bias)
    return found
