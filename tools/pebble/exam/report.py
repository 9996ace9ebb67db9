"""The evaluation as tables, written between two markers of a document."""

from pathlib import Path
from typing import Any

BEGIN, END = "<!-- evaluation: begin -->", "<!-- evaluation: end -->"


def _goal(marks: dict[str, Any]) -> str:
    if marks["ceiling"] is not None:
        return f"below {marks['ceiling']:.0%}"
    return f"{marks['threshold']:.0%}"


def _met(marks: dict[str, Any]) -> bool:
    share = marks["exact"] / marks["documents"]
    return bool(share < marks["ceiling"] if marks["ceiling"] is not None else share >= marks["threshold"])


def _cell(marks: dict[str, Any]) -> str:
    tokens = "" if marks["tokens"] is None else f", {marks['tokens']:.2%} of tokens"
    missed = "" if _met(marks) else " (not met)"
    return f"{marks['exact'] / marks['documents']:.1%} of {marks['documents']}{tokens}{missed}"


def _step(taken: int, offered: int) -> str:
    return f"{taken / offered:.3f}" if offered else "-"


def tables(results: list[dict[str, Any]]) -> str:
    """Markdown of all files side by side."""
    heads = " | ".join(f"`{r['file']}` ({r['bytes'] / 1e6:.1f} MB)" for r in results)
    lines = [f"| exact, greedy, held out | goal | {heads} |", "|---|---|" + "---|" * len(results)]
    for name, marks in results[0]["abilities"].items():
        cells = " | ".join(_cell(r["abilities"][name]) for r in results)
        lines.append(f"| {name} | {_goal(marks)} | {cells} |")
    lines += [
        "",
        f"| drafts taken, steps 1 / 2 / 3, each given the one before | {heads} |",
        "|---|" + "---|" * len(results),
    ]
    for name in results[0]["acceptance"]:
        cells = " | ".join(" / ".join(_step(*step) for step in r["acceptance"][name]) for r in results)
        lines.append(f"| {name} | {cells} |")
    return "\n".join(lines)


def insert(document: Path, results: list[dict[str, Any]]) -> None:
    """Replace what stands between the markers of ``document``."""
    text = document.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"{document} has no {BEGIN} ... {END}")
    document.write_text(f"{before}{BEGIN}\n{tables(results)}\n{END}{after}", "utf-8")
