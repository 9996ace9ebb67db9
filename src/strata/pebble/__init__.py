"""Pebble, the small model in the box: two GGUF files of the same weights, made by ``tools/pebble``.

It is there to prove the machine, and says so; docs/pebble.md has what it can do and how it was made.
"""

from pathlib import Path

from strata.errors import RequestError

_FILES = {"q8_0": "pebble-q8_0.gguf", "iq3": "pebble-iq3.gguf"}
VARIANTS = tuple(_FILES)
"""The 8-bit file, and the low-bit one: experts in IQ3_S and IQ4_NL, the types of the large model's files."""


def path(variant: str = "q8_0") -> Path:
    """Where a shipped file lies.

    Args:
        variant: one of ``VARIANTS``.

    Raises:
        RequestError: there is no such variant.
    """
    if variant not in _FILES:
        raise RequestError(f"Pebble comes as {' or '.join(VARIANTS)}, not {variant!r}")
    return Path(__file__).parent / _FILES[variant]
