"""What may be said of storage before anything is loaded: imports nothing that takes time."""

import re

from strata.errors import RequestError

MODES = ("ram", "mmap", "direct")
"""Ways of reading the n-gram table; `strata.memory.ngram` has them."""

EXPERTS = re.compile(r"blk\.\d+\.ffn_(?:gate|up|down|gate_up)_exps\.weight")
"""Names of routed experts' tensors."""


MOST = 1 << 62
"""Bytes. No machine has as many, and numbers between processes have 64 bits."""


def check_storage(ram: int | None, ngram: str | None, vram: int | None = None, headroom: int | None = None) -> None:
    """Refuse what makes no sense.

    Raises:
        RequestError: a piece of memory is no number of bytes, or nothing of RAM is left, or there is no such way
            of reading.
    """
    for name, nbytes, least in (("ram", ram, 1), ("vram", vram, 0), ("headroom", headroom, 0)):
        if nbytes is None:
            continue
        if isinstance(nbytes, bool) or not isinstance(nbytes, int) or not least <= nbytes < MOST:
            kind = "positive number" if least else "number"
            raise RequestError(f"{name} must be a {kind} of bytes below 2^62, not {nbytes!r}")
    if ngram is not None and ngram not in MODES:
        raise RequestError(f"rows of the n-gram table are read by {', '.join(MODES)}, not {ngram!r}")


def is_expert(name: str) -> bool:
    """Whether a tensor holds routed experts."""
    return EXPERTS.fullmatch(name) is not None
