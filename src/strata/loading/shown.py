"""Numbers of bytes for people, and from them."""

import re

from strata.errors import RequestError

AMOUNT = r"\d{1,15}(\.\d{1,6})?\s*([KkMmGgTt](i?[Bb])?|[Bb])?"
"""What a number of bytes looks like: 24GB, 24 GiB, 500M, 1000."""


def shown_bytes(count: int) -> str:
    """Bytes as people read them, with three digits; 1 GB is 10**9 bytes."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            value = count / unit
            return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f} {name}"
    return f"{count} B"


def bytes_of(text: str) -> int:
    """The number that a text means: 24GB is 24 * 10**9, 24GiB is 24 * 2**30; `AMOUNT` is its form.

    Raises:
        RequestError: it is none.
    """
    match = re.fullmatch(AMOUNT, text.strip())
    if match is None:
        raise RequestError(f"a number of bytes looks like 24GB or 22.5GiB, not {text!r}")
    number = re.match(r"[\d.]+", text.strip())
    assert number is not None
    unit = (match[2] or "").lower()
    step = 1024 if "i" in unit else 1000
    value: float = float(number[0]) * step ** "bkmgt".index(unit[:1] or "b")
    return round(value)
