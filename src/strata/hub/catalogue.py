"""Public files that are known, with their sizes: what a plan needs to know of a file that is not here yet.

The numbers are in ``catalogue.json``, each with where it was stated. They say nothing of where a file is to be had.
"""

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from strata.errors import StrataError

GB = 10**9


@dataclass(frozen=True, slots=True)
class KnownFile:
    """One file or split set.

    Attributes:
        model: short name of the model.
        title: the model's name for people.
        quant: name of the quantisation.
        publisher: who made it.
        total: bytes of all files.
        experts: bytes of the routed experts.
        table: bytes of the n-gram table.
        swell: how many times as large experts are in VRAM.
        draft: bytes of the draft head in memory, which is a file of its own.
        row: bytes of the table that a token reads.
        embedding: bytes of the dense part that a token reads one row of.
        draft_step: bytes that a step of the draft head reads.
        flops: operations for a token of a prompt.
        metadata: dimensions, as a file's header has them.
        source: where the figures were stated.
        note: which figure was not.
    """

    model: str
    title: str
    quant: str
    publisher: str
    total: int
    experts: int
    table: int
    swell: float
    draft: int
    row: int
    embedding: int
    draft_step: int
    flops: float
    metadata: Mapping[str, Any]
    source: str
    note: str

    @property
    def name(self) -> str:
        """What it goes by: MODEL:QUANT."""
        return f"{self.model}:{self.quant}"

    @property
    def dense(self) -> int:
        """Bytes of everything but experts and table."""
        return self.total - self.experts - self.table


@cache
def known_files() -> tuple[KnownFile, ...]:
    """All of them."""
    read = json.loads(Path(__file__).with_name("catalogue.json").read_text(encoding="utf-8"))
    dimensions: dict[str, dict[str, Any]] = {}
    found = []
    for model in read["models"]:
        own = dict(model["metadata"])
        own = dimensions.get(own.pop("same as", ""), {}) | own
        dimensions[model["name"]] = own
        found += [_known(model, own, file, read) for file in model["files"]]
    return tuple(found)


def _known(
    model: Mapping[str, Any], metadata: Mapping[str, Any], file: Mapping[str, Any], all_: Mapping[str, Any]
) -> KnownFile:
    table, dense = file["table"], all_["dense"]
    experts = file.get("experts", file.get("total", 0) - table - dense)
    total = file.get("total", experts + table + dense)
    return KnownFile(
        model["name"], model["title"], file["quant"], file["publisher"], round(total * GB), round(experts * GB),
        round(table * GB), file["swell"],
        round(model["draft"] * GB), model["row"], round(all_["embedding"] * GB), round(all_["draft_step"] * GB),
        1e9 * all_["gflops"], metadata, file["source"], file.get("note", ""),
    )  # fmt: skip


def find_known(name: str) -> tuple[KnownFile, ...]:
    """The file MODEL:QUANT, or all files of MODEL; empty if nothing known is meant. Case does not matter."""
    model, _, quant = name.lower().partition(":")
    return tuple(file for file in known_files() if file.model == model and (not quant or file.quant.lower() == quant))


def unknown(name: str) -> StrataError:
    """An error for a name of a known model without such a file, or of nothing known, with the nearest names."""
    model, _, quant = name.lower().partition(":")
    files = find_known(model)
    if files and quant:
        listed = ", ".join(file.quant for file in files)
        return StrataError(f"the catalogue has no {quant.upper()} of {files[0].title}; it has {listed}")
    names = sorted({file.model for file in known_files()})
    close = difflib.get_close_matches(model, names, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; the catalogue has {', '.join(names)}"
    return StrataError(f"{name!r} is no file, no pulled model, and not in the catalogue{hint}")
