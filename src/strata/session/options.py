"""Settings of the scheduler and of what it keeps."""

from dataclasses import dataclass
from pathlib import Path

from strata.errors import RequestError
from strata.session.queue import AGING

ROWS = 8
"""Most conversations of a window."""

CUT = 64
"""Passes over prompts end at multiples of it."""


@dataclass(frozen=True, slots=True)
class Options:
    """How many conversations run, and what is kept of them. None of it changes any answer.

    Attributes:
        slots: conversations read or decoded at a time, 1 to 8.
        queue: requests that may wait besides; one more is refused.
        keep: whether anything is kept for later requests.
        ram: bytes of memory for what is kept; states of running conversations are not counted.
        folder: where conversations are stored for later and for other processes; None stores nothing.
        disk: bytes of the folder.
        reserve: bytes that stay free on the folder's disk.
        identity: what tells the model's file from others, besides the fingerprint taken of the weights.
        step: tokens between checkpoints that nobody asked for; in effect a multiple of `rows`, where passes end.
        rows: tokens of a pass over a prompt, a multiple of 64; None is the network's own size. While a pass is
            computed nothing else is.
        wait: seconds that a pass over a prompt may take while others are answered or wait for theirs; it is then as
            short as that needs, and makes sense (`strata.session.pace`). None leaves them as long as they are.
        same_forms: whether this device computes a token to the same bytes as part of a prompt and in a window. The
            CPU does. Where it does not, what was generated is told apart from what was read, see `Request.exact`.
        aging: seconds without service that count as much as one step of priority.

    Raises:
        RequestError: a value is of the wrong type or out of range.
    """

    slots: int = ROWS
    queue: int = 64
    keep: bool = True
    ram: int = 1 << 30
    folder: Path | None = None
    disk: int = 10 << 30
    reserve: int = 1 << 30
    identity: str = ""
    step: int = 512
    rows: int | None = None
    wait: float | None = None
    same_forms: bool = True
    aging: float = AGING

    def __post_init__(self) -> None:
        """Check the types and the ranges."""
        for name in ("slots", "queue", "step", "rows", "ram", "disk", "reserve", "wait", "aging"):
            value = getattr(self, name)
            absent = value is None and name in {"rows", "wait"}
            if not absent and (isinstance(value, bool) or not isinstance(value, int | float)):
                raise RequestError(f"{name} must be a number, not {value!r}")
        if not 1 <= self.slots <= ROWS:
            raise RequestError(f"slots must be from 1 to {ROWS}, not {self.slots}: a window has at most {ROWS} rows")
        if self.rows is not None and (self.rows < CUT or self.rows % CUT):
            raise RequestError(f"passes have a multiple of {CUT} rows, not {self.rows}")
        if self.wait is not None and not self.wait > 0:
            raise RequestError(f"others wait for a number of seconds above 0, not {self.wait}")
        if self.step < 1:
            raise RequestError(f"checkpoints need a distance of at least 1 token, not {self.step}")
        for name in ("queue", "ram", "disk", "reserve"):
            if getattr(self, name) < 0:
                raise RequestError(f"{name} must be at least 0, not {getattr(self, name)}")
