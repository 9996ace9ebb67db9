"""What the measured bandwidths allow: the least time of a window, a prompt, a restored conversation. Pure arithmetic.

A layer needs the sum of the one before, so dense weights and experts come one after the other; experts in slots are
computed while missing ones come. Of a window

    time = (dense weights + recurrent states) / VRAM + max(hits / VRAM, misses / (link + RAM))

for the CPU reads what it computes itself, at the RAM's pace, while the link brings the rest. Both read the same RAM, so
their rates are those that each has beside the other, where these were measured. Of a prompt, whose missing
experts all come over the link,

    time = max(missing experts / link, operations / tensor cores)

and of a conversation that is brought back, its files over the disk, its bytes over the link and a window, one after
another.
"""

from collections.abc import Mapping
from typing import Any

GFLOP_PER_TOKEN = 12.1
"""Of the released shapes, read as a prompt: twice the weights that a token visits, and attention."""


def bounds(parts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Of every figure whose parts are known: its bound, in the figure's unit, and the times it is made of in ms."""
    speeds = parts.get("bandwidths", {})
    found: dict[str, dict[str, Any] | None] = {}
    decode, caps = (parts.get(name, {}).get("arms", {}) for name in ("decode", "caps"))
    for name in ("none", "half"):
        found[f"{name}_resident_tps"] = _rate(window(speeds, decode.get(name, {}), "decode"))
    found["plain_decode_tps"] = _rate(window(speeds, whole(decode.get("resident", {})), "decode"))
    resident = caps.get("resident", {}).get("medians", {}).get("window4_ms")
    for name in ("cap24", "cap12"):
        found[f"{name}_window_ratio"] = _ratio(window(speeds, caps.get(name, {}), "window4"), resident)
    for name, part, tokens in (("8192_none", "prompt_none", 8192), ("200_cap24", "prompt_cap24", 200)):
        found[f"prompt_{name}_tps"] = prompt(speeds, parts.get(part, {}), tokens)
    for name in ("ram", "disk"):
        back = parts.get("restore", {})
        back = back | {"bytes_read": on_disk(back)}
        found[f"restore_{name}_ms"] = restored(speeds, back, disk=name == "disk")
        told = back.get("q8", {})  # the rounds in pieces are those of the default
        eight = back | {"bytes": told.get("bytes"), "file_bytes": on_disk(told)}
        found[f"restore_{name}_q8_ms"] = restored(speeds, eight, disk=name == "disk")
    for name in ("iq3_xxs", "iq4_nl", "q8_0"):
        if "ram_gbs" in speeds:
            found[f"cpu_{name}_gbs"] = {"bound": speeds["ram_gbs"]}
    return {name: value for name, value in found.items() if value is not None}


def window(speeds: Mapping[str, float], arm: Mapping[str, Any], what: str) -> dict[str, float] | None:
    """Milliseconds of a window; None where something was not measured.

    Args:
        speeds: GB/s, `vram_gbs`, `link_gbs` and `ram_gbs`; of these two at the same time `link_beside_ram_gbs` and
            `ram_beside_link_gbs`.
        arm: `facts` in bytes, and `met`, experts a window, under ``what``.
        what: decode, window1 or window4.
    """
    facts, met = arm.get("facts"), arm.get("met", {}).get(what)
    if facts is None or met is None or not {"vram_gbs", "link_gbs", "ram_gbs"} <= speeds.keys() or "union" not in met:
        return None
    dense = _ms(facts["dense_bytes"] + facts["state_bytes"], speeds["vram_gbs"])
    hits = _ms(met["resident"] * facts["slot_bytes"], speeds["vram_gbs"])
    missing = met["by_link"] + met["by_host"]
    link = speeds.get("link_beside_ram_gbs", speeds["link_gbs"])
    misses = _ms(missing * facts["expert_bytes"], link + speeds.get("ram_beside_link_gbs", speeds["ram_gbs"]))
    return {"ms": dense + max(hits, misses), "dense_ms": dense, "hits_ms": hits, "misses_ms": misses}


def whole(arm: Mapping[str, Any]) -> dict[str, Any]:
    """The arm with all experts in VRAM, of which nobody counts what it meets: a row visits as many as it chooses."""
    if "facts" not in arm:
        return {}
    visited = arm["facts"]["layers"] * arm["facts"]["topk"]
    met = {"union": visited, "resident": visited, "by_link": 0, "by_host": 0}
    return {"facts": arm["facts"], "met": {"decode": met}}


def prompt(speeds: Mapping[str, float], part: Mapping[str, Any], tokens: int) -> dict[str, Any] | None:
    """Tokens a second of a prompt."""
    brought, facts = part.get("brought", {}).get(str(tokens)), part.get("facts")
    if brought is None or facts is None or not {"link_gbs", "matmul_tflops"} <= speeds.keys():
        return None
    link = _ms(brought * facts["expert_bytes"], speeds["link_gbs"])
    compute = tokens * GFLOP_PER_TOKEN / speeds["matmul_tflops"]
    return _rounded(bound=1e3 * tokens / max(link, compute), ms=max(link, compute), link_ms=link, compute_ms=compute)


def restored(speeds: Mapping[str, float], part: Mapping[str, Any], *, disk: bool) -> dict[str, Any] | None:
    """Milliseconds until the first token of a conversation that is brought back."""
    facts, size = part.get("facts"), part.get("bytes")
    if facts is None or size is None or not {"link_gbs", "vram_gbs"} <= speeds.keys():
        return None
    experts = facts["layers"] * facts["topk"] * facts["slot_bytes"]
    first = _ms(facts["dense_bytes"] + facts["state_bytes"] + experts, speeds["vram_gbs"])
    times = {"link_ms": _ms(size, speeds["link_gbs"]), "window_ms": first}
    if disk:
        if "disk_gbs" not in part:
            return None
        # A disk gives at least what it gave when all of it was read; one that others use, too, gives less now and then.
        states = [one["state"] for one in part.get("rounds", {}).get("disk_parts_ms", [])]
        seen = 1e-6 * part["bytes_read"] / min(states) if states else 0.0
        times["disk_ms"] = _ms(on_disk(part), max(part["disk_gbs"], seen))
    return _rounded(bound=sum(times.values()), **times)


def on_disk(part: Mapping[str, Any]) -> float:
    """Bytes of a conversation's files; of those that were measured before files were packed, its bytes in memory."""
    return part.get("file_bytes") or part.get("bytes") or 0


def _rate(times: dict[str, float] | None) -> dict[str, Any] | None:
    return None if times is None else _rounded(bound=1e3 / times["ms"], **times)


def _ratio(times: dict[str, float] | None, resident: float | None) -> dict[str, Any] | None:
    """To the window with all experts in VRAM as it was measured: what misses add that hits do not hide."""
    if times is None or not resident:
        return None
    more = max(0.0, times["misses_ms"] - times["hits_ms"])
    return _rounded(bound=1.0 + more / resident, resident_ms=resident, **times)


def _ms(nbytes: float, gbs: float) -> float:
    return nbytes / gbs / 1e6


def _rounded(**values: float) -> dict[str, float]:
    return {name: round(value, 3) for name, value in values.items()}
