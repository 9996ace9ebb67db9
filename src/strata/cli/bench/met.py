"""What windows met where experts lie in tiers, by the number of their rows, from a trace."""

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from strata.cli.table import table


@dataclass(slots=True)
class Met:
    """Windows of one number of rows.

    Attributes:
        rows: of each.
        windows: how many.
        experts: distinct ones they visited, layer by layer, in all.
        vram: of these, in slots on the GPU.
        link: brought over the link.
        host: computed where they lie.
        wait_us: microseconds from messages to the host to its answers, whatever the GPU computed meanwhile.
    """

    rows: int
    windows: int = 0
    experts: int = 0
    vram: int = 0
    link: int = 0
    host: int = 0
    wait_us: float = 0.0

    def shown(self) -> dict[str, Any]:
        """Sums, and what they come to: the hit rate, and of a window the union of experts and the wait."""
        each = max(1, self.windows)
        hits = self.vram / self.experts if self.experts else 1.0
        return asdict(self) | {
            "hit_rate": round(hits, 4),
            "union": round(self.experts / each, 1),
            "wait_us_each": round(self.wait_us / each, 1),
        }


def met(trace: bytes) -> list[Met]:
    """By rows, rising; nothing where experts have one place."""
    found: dict[int, Met] = {}
    by_rows: defaultdict[int, list[dict[str, Any]]] = defaultdict(list)
    for event in json.loads(trace)["traceEvents"]:
        if event.get("name") == "window" and event["args"].get("hits"):
            by_rows[event["args"]["rows"]].append(event["args"])
    for rows, some in sorted(by_rows.items()):
        one = found[rows] = Met(rows, len(some))
        for each in some:
            one.experts += sum(each["hits"].values())
            one.vram += each["hits"].get("vram", 0)
            one.link += each["misses"].get("link", 0)
            one.host += each["misses"].get("host", 0)
            one.wait_us += each.get("host_wait_us", 0.0)
    return list(found.values())


def as_text(found: list[Met]) -> str:
    """A table for people; empty where there is nothing to say."""
    if not found:
        return ""
    head = ("Rows", "Windows", "Hit rate", "Experts a window", "Link", "Host", "Host, us")
    lines = []
    for one in found:
        shown, each = one.shown(), max(1, one.windows)
        lines.append((
            str(one.rows), str(one.windows), f"{shown['hit_rate']:.1%}", f"{shown['union']:.0f}",
            f"{one.link / each:.1f}", f"{one.host / each:.1f}", f"{shown['wait_us_each']:.0f}",
        ))  # fmt: skip
    return table(head, lines, right=tuple(range(7)))
