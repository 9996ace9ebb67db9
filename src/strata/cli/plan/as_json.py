"""A plan for machines."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from strata.memory.budget import Account, Part, estimate
from strata.memory.budget.words import sentences

if TYPE_CHECKING:
    from strata.cli.plan.command import Outcome
    from strata.cli.plan.machine import Found


def as_json(outcome: "Outcome", found: "Found") -> dict[str, Any]:
    """All of it; sizes are bytes, speeds tokens a second."""
    sizes, made = outcome.subject.sizes, outcome.plan
    value: dict[str, Any] = {
        "model": sizes.name,
        "files": [str(path) for path in outcome.subject.files],
        "download": sizes.files,
        "source": sizes.about,
        "machine": asdict(found.machine if made is None else made.machine)
        | {"vram_from": found.vram_from, "ram_from": found.ram_from},
        "fits": made is not None,
    }
    if outcome.refusal is not None:
        short = outcome.refusal.shortage
        value["shortage"] = {"where": short.where, "free": short.free, "need": short.need, "parts": _parts(short.parts)}
        value["advice"] = list(outcome.refusal.advice)
    if made is None:
        return value
    speed = estimate(made)
    return value | {
        "device": made.device,
        "context": made.context,
        "conversations": made.conversations,
        "cells": made.cells,
        "kv": made.kv,
        "drafts": made.drafts,
        "prompt_rows": made.rows,
        "prompt_rows_without_borrowing": made.short,
        "borrowed": made.lent,
        "vram": None if made.vram is None else _account(made.vram),
        "ram": _account(made.ram),
        "ssd": _parts(made.ssd),
        "experts": {
            "total": sizes.experts, "in_vram": made.slots, "in_ram": made.arena.value,
            "on_ssd": sum(one.on_ssd for one in made.classes), "classes": [asdict(one) for one in made.classes],
        },
        "table": made.table.value,
        "estimate": None if speed is None else asdict(speed) | {"best": speed.best},
        "sentences": list(sentences(made)),
    }  # fmt: skip


def _account(account: Account) -> dict[str, Any]:
    return {"budget": account.budget, "used": account.used, "free": account.free, "parts": _parts(account.parts)}


def _parts(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    return [asdict(part) for part in parts]
