"""A line chart as SVG, in few lines: curves, ranges that were published, axes, a legend."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 820, 520
LEFT, RIGHT, TOP, BOTTOM = 60, 220, 30, 50
COLOURS = ("#0b6e4f", "#7fb069", "#1f6fb4", "#d1495b", "#8d6a9f", "#8a8a8a", "#9cc5e8", "#111111")

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    Attributes:
        label: what it shows.
        low: where it begins.
        high: where it ends.
        step: between two ticks.
    """

    label: str
    low: float
    high: float
    step: float

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        """Values with a tick."""
        return [self.low + i * self.step for i in range(int((self.high - self.low) / self.step + 1.5))]


def chart(
    title: str,
    across: Axis,
    up: Axis,
    curves: Mapping[str, Points],
    ranges: Mapping[str, tuple[float, float, float]] | None = None,
) -> str:
    """The chart as the text of an SVG file.

    Args:
        title: above it.
        across: horizontal axis.
        up: vertical axis.
        curves: points by name, drawn in order.
        ranges: by label: where it stands, from, to.
    """

    def x(value: float) -> float:
        return round(LEFT + across.share(value) * (WIDTH - LEFT - RIGHT), 1)

    def y(value: float) -> float:
        return round(HEIGHT - BOTTOM - up.share(value) * (HEIGHT - TOP - BOTTOM), 1)

    def text(at_x: float, at_y: float, words: str, anchor: str = "start", more: str = "") -> str:
        return f'<text x="{at_x}" y="{at_y}" text-anchor="{anchor}"{more}>{escape(words)}</text>'

    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}><rect width="100%" height="100%" fill="#ffffff"/>',
        text(LEFT, 20, title, more=' font-weight="bold"'),
        text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, across.label, "middle"),
        text(0, 0, up.label, "middle", f' transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"'),
    ]
    for tick in across.ticks:
        parts.append(f'<path d="M{x(tick)} {TOP}V{HEIGHT - BOTTOM}" stroke="#e4e4e4"/>')
        parts.append(text(x(tick), HEIGHT - BOTTOM + 18, f"{tick:g}", "middle"))
    for tick in up.ticks:
        parts.append(f'<path d="M{LEFT} {y(tick)}H{WIDTH - RIGHT}" stroke="#e4e4e4"/>')
        parts.append(text(LEFT - 8, y(tick) + 4, f"{tick:g}", "end"))
    for number, (name, points) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{x(a)},{y(b)}" for a, b in points)
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="{3 if not number else 2}"/>'
        )
        at = TOP + 12 + 22 * number
        parts.append(f'<path d="M{WIDTH - RIGHT + 14} {at - 4}h24" stroke="{colour}" stroke-width="3"/>')
        parts.append(text(WIDTH - RIGHT + 44, at, name))
    for name, (share, low, high) in (ranges or {}).items():
        bar = f"M{x(share) - 5} {y(low)}h10m-5 0V{y(high)}m-5 0h10"
        parts.append(
            f'<path d="{bar}" fill="none" stroke="#000000" stroke-width="2"><title>{escape(name)}</title></path>'
        )
    if ranges:
        at = TOP + 12 + 22 * len(curves)
        parts.append(f'<path d="M{WIDTH - RIGHT + 26} {at - 12}v14m-5 0h10m-10 -14h10" stroke="#000000" fill="none"/>')
        parts.append(text(WIDTH - RIGHT + 44, at, "published"))
    return "\n".join([*parts, "</svg>"]) + "\n"
