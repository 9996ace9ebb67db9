"""Time lines of kernels: what a window waited for. Pure arithmetic."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A kernel that ran.

    Attributes:
        name: of the function.
        start: microseconds.
        end: microseconds.
    """

    name: str
    start: float
    end: float


def own_time(spans: Iterable[Span]) -> dict[str, tuple[float, int]]:
    """Microseconds a window would be shorter if the kernel took none, and how often it ran, by name.

    Kernels run beside one another and start before the one before has ended. Of every moment the kernel that ends
    first from there on is the one that is waited for, so each gets what lies between the end before its own and its
    own end; all together add up to the window.
    """
    found: dict[str, tuple[float, int]] = {}
    ordered = sorted(spans, key=lambda span: span.end)
    reached = min((span.start for span in ordered), default=0.0)
    for span in ordered:
        time, count = found.get(span.name, (0.0, 0))
        found[span.name] = (time + max(0.0, span.end - reached), count + 1)
        reached = max(reached, span.end)
    return found
