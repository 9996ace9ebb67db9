"""Figures from rounds, and what windows met as numbers a window. Pure arithmetic."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

NAMES = (
    "none_resident_tps", "half_resident_tps", "cap24_window_ratio", "cap12_window_ratio", "prompt_8192_none_tps",
    "prompt_200_cap24_tps", "restore_ram_ms", "restore_disk_ms", "cpu_iq3_xxs_gbs", "cpu_iq4_nl_gbs", "cpu_q8_0_gbs",
)  # fmt: skip
"""Figures, in the order in which they are told."""

KINDS = ("IQ3_XXS", "IQ4_NL", "Q8_0")
"""Types whose products on the CPU are a figure."""


def figures(parts: Mapping[str, Any]) -> dict[str, float]:
    """All figures that the parts allow, from their raw rounds."""
    decode, caps = (parts.get(name, {}).get("arms", {}) for name in ("decode", "caps"))
    found: dict[str, float | None] = {
        f"{name}_resident_tps": median(_rounds(decode, name, "decode_tps")) for name in ("none", "half")
    }
    for name in ("cap24", "cap12"):
        found[f"{name}_window_ratio"] = ratio(
            _rounds(caps, name, "window4_ms"), _rounds(caps, "resident", "window4_ms")
        )
    found["prompt_8192_none_tps"] = median(parts.get("prompt_none", {}).get("rounds", {}).get("8192", ()))
    found["prompt_200_cap24_tps"] = median(parts.get("prompt_cap24", {}).get("rounds", {}).get("200", ()))
    for name in ("ram", "disk"):
        found[f"restore_{name}_ms"] = median(parts.get("restore", {}).get("rounds", {}).get(f"{name}_ms", ()))
    for cell in parts.get("host", {}).get("matrices", ()):
        if cell["type"] in KINDS:
            found[f"cpu_{cell['type'].lower()}_gbs"] = median(cell["rounds_1"])
    return {name: value for name, value in found.items() if value is not None}


def median(rounds: Sequence[float], digits: int = 3) -> float | None:
    """Of some rounds; None of none."""
    return round(statistics.median(rounds), digits) if rounds else None


def ratio(rounds: Sequence[float], to: Sequence[float]) -> float | None:
    """Median of the ratios within each round, where arms took turns; None without a whole round."""
    pairs = list(zip(rounds, to, strict=False))
    return round(statistics.median(one / other for one, other in pairs), 3) if pairs else None


def per_window(sums: Mapping[str, float], layers: int) -> dict[str, float]:
    """What windows met, from sums over them (`strata.model.tally.Tally`).

    Args:
        sums: fields of a tally.
        layers: of the model.

    Returns:
        Windows; of each on average the distinct experts visited (the union over its rows, all layers together), those
        found in slots, brought over the link and computed by the host, messages to the host, and how long it took to
        answer; the share found.
    """
    windows = sums["layers"] / layers
    if not windows:
        return {"windows": 0}
    each = {name: sums[name] / windows for name in ("experts", "resident", "link", "host", "whole", "waits")}
    return {
        "windows": round(windows),
        "union": round(each["experts"], 2),
        "resident": round(each["resident"], 2),
        "by_link": round(each["link"], 2),
        "by_host": round(each["host"], 2),
        "hit_rate": round(sums["resident"] / sums["experts"], 4) if sums["experts"] else 1.0,
        "layers_without_a_miss": round(each["whole"], 2),
        "waits_for_the_host": round(each["waits"], 2),
        "host_wait_us": round(sums["waited_us"] / windows, 1),
    }


def share_of_the_first(counts: Sequence[float], part: float) -> float:
    """Share of all visits that the most visited part of the experts gets."""
    ordered = sorted(counts, reverse=True)
    total = sum(ordered)
    return sum(ordered[: round(part * len(ordered))]) / total if total else 0.0


def _rounds(arms: Mapping[str, Any], name: str, what: str) -> Sequence[float]:
    rounds: Sequence[float] = arms.get(name, {}).get("rounds", {}).get(what, ())
    return rounds
