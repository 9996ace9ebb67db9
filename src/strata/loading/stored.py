"""What may be said of storage before anything is loaded: imports nothing that takes time."""

import re

from strata.errors import RequestError

MODES = ("ram", "mmap", "direct")
"""Ways of reading the n-gram table; `strata.memory.ngram` has them."""

EXPERTS = re.compile(r"blk\.\d+\.ffn_(?:gate|up|down|gate_up)_exps\.weight")
"""Names of routed experts' tensors."""


def check_storage(most: int | None, ngram: str | None) -> None:
    """Refuse what makes no sense.

    Raises:
        RequestError: the memory is no positive number of bytes, or there is no such way of reading.
    """
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < 1):
        raise RequestError(f"ram must be a positive number of bytes, not {most!r}")
    if ngram is not None and ngram not in MODES:
        raise RequestError(f"rows of the n-gram table are read by {', '.join(MODES)}, not {ngram!r}")


def is_expert(name: str) -> bool:
    """Whether a tensor holds routed experts."""
    return EXPERTS.fullmatch(name) is not None
