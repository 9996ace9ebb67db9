"""Bytes a launch has to move: each tensor it is given once, but of those it takes a part of only that part."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from strata.lab.roofline.launches import Launch

Given = dict[str, Any]


def moved(launch: Launch) -> float:
    """Bytes. What several programs read counts once: the others find it in the cache."""
    total, seen = 0.0, set()
    for name, value in launch.arguments.items():
        if not isinstance(value, Tensor) or value.data_ptr() in seen:
            continue
        seen.add(value.data_ptr())
        part = PARTS.get((launch.name, name)) or PARTS.get(("", name))
        total += value.nbytes if part is None else part(launch.arguments)
    return total


def _row(name: str, count: str, twice: int = 1) -> Callable[[Given], float]:
    """As many entries of the first axis as another argument is long."""
    return lambda given: float(twice * len(given[count]) * given[name][0].nbytes)


def _layer(name: str, count: str, twice: int = 1) -> Callable[[Given], float]:
    """The same of one layer; layers are the second axis."""
    return lambda given: float(twice * len(given[count]) * given[name][0, 0].nbytes)


def _cells(given: Given, name: str, each: int) -> float:
    """What rows see of cached cells, one for every ``each`` tokens, but no more than attention may take."""
    seen = given["seen"].float() / each
    if "PARTS" in given:
        seen = seen.clamp(max=given["BUDGET"] * given["RATIO"] + given["RATIO"] - 1)
    cells: Tensor = given[name]
    return float(seen.sum()) * cells.shape[-1] * cells.element_size() * (cells.shape[-2] if cells.ndim > 3 else 1)


def _new(name: str) -> Callable[[Given], float]:
    """A cell for every row."""
    return lambda given: float(len(given["positions"]) * given[name].shape[-1] * given[name].element_size())


def _experts(given: Given) -> float:
    """Parts of the slots of all distinct experts."""
    resident = int(given["totals"][0])
    part = 2 * given["up_at"] if "up_at" in given else given["stride"] - given["down_at"]
    return float(resident * part)


def _table(given: Given) -> float:
    return float(len(given["ids"].reshape(-1)) * given["w"].nbytes / given["N"])


def _scores(given: Given) -> float:
    return float((given["seen"].to(torch.int64) // given["RATIO"]).sum()) * 4


PARTS: dict[tuple[str, str], Callable[[Given], float]] = {
    ("", "slots_base"): _experts,
    ("", "slot_of"): lambda given: 4.0 * given["TOPK"],
    ("", "states"): _layer("states", "places", twice=2),
    ("window", "tails"): _layer("tails", "slots"),
    ("prepare", "tails"): _layer("tails", "slots"),
    ("smooth", "tails"): _row("tails", "slots"),
    ("shift", "tails"): _row("tails", "slots", twice=2),
    ("", "history"): _row("history", "slots"),
    ("", "pages"): lambda _: 0.0,
    ("", "cos"): lambda given: 4.0 * len(given["positions"]) * given["HALF"],
    ("", "sin"): lambda given: 4.0 * len(given["positions"]) * given["HALF"],
    ("prepare", "keys"): _new("keys"),
    ("prepare", "values"): _new("values"),
    ("index", "raw"): _new("raw"),
    ("index", "blocks"): _new("blocks"),
    ("attend", "keys"): lambda given: _cells(given, "keys", 1),
    ("attend", "values"): lambda given: _cells(given, "values", 1),
    ("score", "blocks"): lambda given: _cells(given, "blocks", given["RATIO"]),
    ("", "scores"): _scores,
    ("score", "out"): _scores,
    ("", "peaks"): lambda _: 0.0,
    ("gather", "w"): _table,
}
"""By kernel and argument; an empty kernel is any."""
