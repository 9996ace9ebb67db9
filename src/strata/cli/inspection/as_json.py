"""A report for machines."""

from dataclasses import asdict
from typing import Any

from strata.cli.inspection.report import Report
from strata.gguf import TensorDirectory


def as_json(facts: Report, listed: TensorDirectory | None, damage: list[str] | None) -> dict[str, Any]:
    """The whole report; "tensors" and "damage" only if asked for."""
    config = asdict(facts.config)
    config["mixers"] = [mixer.value for mixer in facts.config.mixers]
    value: dict[str, Any] = {
        "files": [str(path) for path in facts.files],
        "config": config,
        "roles": [{"role": role.name, "place": role.place, **asdict(part)} for role, part in facts.roles],
        "types": [{"type": name, **asdict(part)} for name, part in facts.types],
        "whole": asdict(facts.whole),
        "needed_bytes": facts.needed,
        "unread_keys": facts.unread_keys,
        "unused_tensors": facts.unused,
        "widened_types": facts.widened,
    }
    if listed:
        value["tensors"] = [
            {
                "name": info.name,
                "shape": info.shape,
                "type": info.type.name,
                "bytes": info.nbytes,
                "offset": info.offset,
                "file": str(info.path),
            }
            for info in listed.tensors.values()
        ]
    if damage is not None:
        value["damage"] = damage
    return value
