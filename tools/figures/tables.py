"""Results as tables beside what must be reached, what is aimed at, the bound, and the peer. Pure text."""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from figures.bounds import on_disk

NOT = "not measured"


@dataclass(frozen=True, slots=True)
class Claim:
    """A figure and what is said of it.

    Attributes:
        name: in the results.
        what: in words.
        unit: behind the number.
        peer: llama.cpp's on that machine and file.
        must: to be reached.
        aim: wished for.
        most: whether less is better.
        digits: behind the point.
    """

    name: str
    what: str
    unit: str
    must: float | None = None
    aim: float | None = None
    peer: str = ""
    most: bool = False
    digits: int = 0


TIERS = (
    Claim("none_resident_tps", "plain decode, no routed expert in VRAM", "t/s", 55, 80, "21.6", digits=1),
    Claim("half_resident_tps", "plain decode, half of the experts in VRAM", "t/s", 90, 130, "33.5", digits=1),
    Claim("cap24_window_ratio", "24 GB cap, skewed routing, 4 rows, to all in VRAM", "x", 2.0, 1.4, most=True,
          digits=2),
    Claim("cap12_window_ratio", "12 GB cap, the same", "x", most=True, digits=2),
    Claim("prompt_8192_none_tps", "prompt of 8,192 tokens, no expert in VRAM", "t/s", 5000, 7500, "1,281 (4,096)"),
    Claim("prompt_200_cap24_tps", "prompt of 200 tokens, 24 GB cap", "t/s", 600, 1500),
    Claim("restore_ram_ms", "first token after 32,768 tokens came back from RAM", "ms", 60, 25, most=True, digits=1),
    Claim("restore_disk_ms", "the same from a disk", "ms", 400, 200, most=True, digits=1),
    Claim("cpu_iq3_xxs_gbs", "the CPU's kernels, IQ3_XXS, 16 threads", "GB/s", 30, digits=1),
    Claim("cpu_iq4_nl_gbs", "the CPU's kernels, IQ4_NL", "GB/s", 65, digits=1),
    Claim("cpu_q8_0_gbs", "the CPU's kernels, Q8_0", "GB/s", 80, digits=1),
)  # fmt: skip

RESIDENT = (
    Claim("plain_decode_tps", "plain decode, empty context", "t/s", 300, 430, "110", digits=1),
    Claim("plain_decode_32k_tps", "plain decode behind 32,768 tokens", "t/s", peer="74", digits=1),
    Claim("window4_ratio", "window of 4 rows, to one row", "x", 1.8, 1.5, most=True, digits=2),
    Claim("prompt_4096_tps", "prompt of 4,096 tokens", "t/s", 10_000, 20_000, "3,255"),
    Claim("prompt_512_tps", "prompt of 512 tokens", "t/s", 4000, 8000, "1,840"),
    Claim("ttft_17_ms", "time to first token, prompt of 17 tokens", "ms", 30, 12, most=True, digits=1),
    Claim("vram_overhead_gb", "VRAM beside weights, keys and values", "GB", 1.5, 1.0, "about 2", most=True, digits=2),
    Claim("nodes_per_window", "launches of a window of one row", "", most=True),
)

DEEP = "within 5% of the empty context's", "2%"
"""What must be reached, and is aimed at, behind a long text."""


def page(text: str, tiers: Mapping[str, Any], resident: Mapping[str, Any]) -> str:
    """A page with its tables written anew.

    Args:
        text: with `<!-- name -->` and `<!-- end -->` around each table.
        tiers: results of tools/gpu_tiers.py.
        resident: results of tools/gpu_resident.py.
    """
    bounds = tiers.get("bounds", {})
    tables: dict[str, Callable[[], str]] = {
        "tiers": lambda: claims(TIERS, tiers.get("figures", {}), bounds),
        "resident": lambda: claims(RESIDENT, resident.get("figures", {}), bounds),
        "met": lambda: met(tiers.get("parts", {})),
        "prompts": lambda: prompts(tiers.get("parts", {})),
        "restored": lambda: restored(tiers.get("parts", {}).get("restore", {})),
        "cpu": lambda: cpu(tiers.get("parts", {}).get("host", {})),
        "parts": lambda: pieces(bounds),
        "bandwidths": lambda: bandwidths(tiers.get("parts", {}).get("bandwidths", {})),
        "conditions": lambda: conditions(tiers, resident),
    }
    for name, write in tables.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
        text = pattern.sub(lambda found, write=write: f"{found[1]}{write()}\n{found[2]}", text)  # type: ignore[misc]
    return text


def claims(wanted: Sequence[Claim], figures: Mapping[str, float], bounds: Mapping[str, Any]) -> str:
    """Figures beside what is said of them."""
    rows = []
    for one in wanted:
        value, bound = figures.get(one.name), bounds.get(one.name, {}).get("bound")
        must, aim = _number(one.must, one), _number(one.aim, one)
        reached = ""
        if one.name == "plain_decode_32k_tps":
            must, aim = DEEP
            empty = figures.get("plain_decode_tps")
            reached = "" if value is None or empty is None else _reached(value / empty, 0.95, 0.98, most=False)
        elif value is not None and one.must is not None:
            reached = _reached(value, one.must, one.aim, most=one.most)
        share = "" if value is None or not bound else f"{(bound / value if one.most else value / bound):.0%}"
        shown = NOT if value is None else f"**{_number(value, one)}**"
        rows.append(
            [f"{one.what}, {one.unit}".rstrip(", "), one.peer, must, aim, shown, reached, _number(bound, one), share]
        )
    return table(["what", "llama.cpp", "must", "aim", "Strata", "", "bound", "of it"], rows)


def met(parts: Mapping[str, Any]) -> str:
    """What the windows of every placement met."""
    rows = []
    for part, kinds in (("decode", ("decode", "window4")), ("caps", ("window4", "decode"))):
        for name, arm in parts.get(part, {}).get("arms", {}).items():
            if "does_not_fit" in arm:
                rows.append([f"{name}", arm["does_not_fit"], *[""] * 8])
                continue
            for kind in kinds:
                seen, rows_ = arm["met"][kind], 4 if kind == "window4" else 1
                time = arm["medians"]["window4_ms" if rows_ == 4 else "window1_ms"]
                known = parts.get("nodes", {}).get("resident" if name == "resident" else "none", {})
                launched = known.get(str(rows_))
                cells = ["", "", "", "", "", ""]
                if "hit_rate" in seen:
                    counts = [f"{seen[where]:.0f}" for where in ("union", "resident", "by_link", "by_host")]
                    cells = [f"{seen['hit_rate']:.1%}", *counts, f"{seen['host_wait_us'] / 1e3:.2f}"]
                rows.append([name, f"{rows_}", f"{time:.2f}", *cells, "" if launched is None else str(launched)])
    heads = [
        "placement",
        "rows",
        "window, ms",
        "hit rate",
        "union",
        "in slots",
        "by link",
        "by host",
        "host, ms",
        "nodes",
    ]
    return table(heads, rows) if rows else NOT


def prompts(parts: Mapping[str, Any]) -> str:
    """All prompts that were read, and how many experts came for each."""
    words = {"prompt_none": "{0:,} tokens, none in VRAM, passes of {1:,}", "prompt_cap24": "{1:,} tokens, 24 GB cap"}
    rows = [
        [text.format(part.get("tokens", 0), int(which)), f"{speed:,.0f}", f"{part['brought'][which]:,}"]
        for name, text in words.items()
        if (part := parts.get(name))
        for which, speed in part.get("medians", {}).items()
    ]
    return table(["prompt", "tokens/s", "experts that came"], rows) if rows else NOT


def restored(part: Mapping[str, Any]) -> str:
    """Where the time goes when a conversation comes back: medians of the pieces."""
    rows = []
    for where in ("ram", "disk"):
        for kind, told in (("", part), ("_q8", part.get("q8", {}))):
            rounds, pieces_ms = part.get("rounds", {}), ["", ""]
            if not rounds.get(f"{where}{kind}_ms"):
                continue
            if not kind and rounds.get(f"{where}_parts_ms"):
                seen = rounds[f"{where}_parts_ms"]
                pieces_ms = [f"{statistics.median(one[what] for one in seen):.1f}" for what in ("state", "token")]
            whole = statistics.median(rounds[f"{where}{kind}_ms"])
            name = f"{where}, keys and values in eight bits" if kind else where
            size = on_disk(told) if where == "disk" else told["bytes"]
            rows.append([name, f"{size / 1e9:.2f}", *pieces_ms, f"{whole:.1f}"])
    heads = ["from", "GB", "state, ms", "pass over one token, ms", "request to first token, ms"]
    return table(heads, rows) if rows else NOT


def cpu(part: Mapping[str, Any]) -> str:
    """Layers of experts on the CPU."""
    rows = [
        [cell["mix"], str(cell["experts"]), f"{cell['microseconds']:,.0f}", f"{cell['gb_per_s']:.1f}"]
        for cell in part.get("layers", ())
    ]
    return table(["gate / up / down", "experts", "us", "GB/s"], rows) if rows else NOT


def pieces(bounds: Mapping[str, Any]) -> str:
    """What bounds are made of."""
    names = ["dense_ms", "hits_ms", "misses_ms", "link_ms", "disk_ms", "compute_ms", "window_ms"]
    rows = [
        [name, *(f"{found[key]:.2f}" if key in found else "" for key in names), f"{found['bound']:.2f}"]
        for name, found in bounds.items()
        if any(key in found for key in names)
    ]
    return table(["of", *(key.removesuffix("_ms") for key in names), "bound"], rows) if rows else NOT


def bandwidths(found: Mapping[str, Any]) -> str:
    """Measured speeds of the machine."""
    words = {
        "ram_gbs": "RAM, read by all threads", "ram_file_gbs": "the same in the pages of the model's file",
        "vram_gbs": "VRAM, read", "vram_copy_gbs": "VRAM, copy, read and written", "link_gbs": "link, copy to the GPU",
        "link_back_gbs": "link, copy back", "ram_beside_link_gbs": "RAM, read by the threads while the link copies",
        "link_beside_ram_gbs": "the link meanwhile", "matmul_tflops": "products of float16, TFLOPS",
    }  # fmt: skip
    rows = [[text, f"{found[name]:.1f}"] for name, text in words.items() if name in found]
    return table(["GB/s", ""], rows) if rows else NOT


def conditions(tiers: Mapping[str, Any], resident: Mapping[str, Any]) -> str:
    """Of the last run of either."""
    lines = []
    if tiers.get("sessions"):
        last = tiers["sessions"][-1]
        card, versions = last["gpu"], ", ".join(f"{name} {value}" for name, value in last["versions"].items() if value)
        lines.append(
            f"`python tools/gpu_tiers.py`, {last['when']}: {card.get('name', 'no GPU')}, driver "
            f"{card.get('driver_version', '')}, clocks {card.get('clocks.sm', '')} and {card.get('clocks.mem', '')}; "
            f"{last['cores']} cores of {last['processor']}, {last['memory_gb']} GB of memory; {versions}."
        )
    if tiers.get("failures"):
        lines += [f"Failed: {name}: {one['error']}." for name, one in tiers["failures"].items()]
    if resident.get("conditions"):
        told = "; ".join(
            f"{key}: {value}" for key, value in resident["conditions"].items() if isinstance(value, str | int)
        )
        lines.append(f"All in VRAM: {told}.")
    return "\n\n".join(lines) or NOT


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Of Markdown; the first column is text, the others are numbers."""
    line = "|" + "|".join(["---", *["---:"] * (len(heads) - 1)]) + "|"
    return "\n".join([_row(heads), line, *map(_row, rows)])


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None, one: Claim) -> str:
    if value is None:
        return ""
    return f"{value:,.{0 if value == int(value) and one.digits < 2 else one.digits}f}"


def _reached(value: float, must: float, aim: float | None, *, most: bool) -> str:
    def fine(wanted: float) -> bool:
        return value <= wanted if most else value >= wanted

    if not fine(must):
        return "missed"
    return "aim" if aim is not None and fine(aim) else "reached"
