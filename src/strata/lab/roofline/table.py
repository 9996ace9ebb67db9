"""The roofline as rows, for people and for JSON. Pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel in a window.

    Attributes:
        kernel: function's name.
        launches: in a window.
        microseconds: a window takes for it, see `spans.own_time`.
        share: of the window.
        megabytes: it has to move in a window; None if it is no kernel of ours.
        bandwidth: share of the measured one that its bytes over its time are.
        per_weight: instructions a weight, of the slowest type met; None where that makes no sense.
    """

    kernel: str
    launches: int
    microseconds: float
    share: float
    megabytes: float | None
    bandwidth: float | None
    per_weight: float | None


def rows(
    times: Mapping[str, tuple[float, int]],
    moved: Mapping[str, float],
    per_weight: Mapping[str, float],
    gigabytes_a_second: float,
) -> list[Row]:
    """Rows by falling time, and the window itself first.

    Args:
        times: microseconds and launches by kernel.
        moved: bytes by kernel.
        per_weight: instructions by kernel.
        gigabytes_a_second: what memory was measured to give.
    """

    def row(name: str, launches: int, microseconds: float, nbytes: float | None, instructions: float | None) -> Row:
        reached = None
        if nbytes is not None and microseconds:
            reached = nbytes / (microseconds * 1e-6) / (gigabytes_a_second * 1e9)
        megabytes = None if nbytes is None else nbytes / 1e6
        return Row(name, launches, microseconds, microseconds / whole, megabytes, reached, instructions)

    whole = sum(time for time, _ in times.values()) or 1.0
    every = row("window", sum(n for _, n in times.values()), whole, sum(moved.values()), None)
    ordered = sorted(times.items(), key=lambda item: -item[1][0])
    return [every, *(row(name, n, time, moved.get(name), per_weight.get(name)) for name, (time, n) in ordered)]


def as_text(found: list[Row]) -> str:
    """A table with one line a kernel."""
    lines = [
        f"{'kernel':28} {'launches':>8} {'us':>9} {'share':>6} {'MB':>9} {'of bandwidth':>12} {'instr/weight':>12}"
    ]
    for row in found:
        megabytes = "-" if row.megabytes is None else f"{row.megabytes:.2f}"
        reached = "-" if row.bandwidth is None else f"{row.bandwidth:.0%}"
        weight = "-" if row.per_weight is None else f"{row.per_weight:.2f}"
        name = row.kernel if len(row.kernel) <= 28 else row.kernel[:25] + "..."
        took = f"{row.microseconds:>9.1f} {row.share:>6.1%}"
        lines.append(f"{name:28} {row.launches:>8} {took} {megabytes:>9} {reached:>12} {weight:>12}")
    return "\n".join(lines) + "\n"
