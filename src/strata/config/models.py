"""The models of a config file: `[[model]]` tables, each with what it sets for its model alone."""

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strata.config.kinds import Kind, Switch, Text, Texts, UnfitError
from strata.config.origin import Origin
from strata.config.settings import SETTINGS, Settings
from strata.errors import ConfigError

OWN: Mapping[str, tuple[Kind, str]] = {
    "file": (Text(), "A GGUF file, or the name of a model in the box. Needed."),
    "name": (Text(), "What clients call it; the file's name where it is left out."),
    "aliases": (Texts(), "Other names, as a list; * in one stands for anything."),
    "preload": (Switch(), "Load it when the server starts; otherwise the first request does."),
}
"""Keys of a table that are no settings: kind and meaning."""

SAID = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
    "presence_penalty", "penalty_window", "seed", "max_tokens", "drafts", "lookup", "thinking", "effort",
    "effort_place",
)  # fmt: skip
"""Of these, what a request says nothing about is taken."""

SHARED = (
    "threads", "device", "context", "rope_scaling", "rope_scale", "kv", "ram", "vram", "headroom", "ngram",
    "conversations", "queue", "idle", "cache_ram", "cache_folder", "cache_disk", *SAID,
)  # fmt: skip
"""Settings that a table may set for its model."""


@dataclass(frozen=True, slots=True)
class ModelTable:
    """One table as it stands in the file.

    Attributes:
        name: what clients call it.
        file: of the model.
        aliases: other names.
        preload: whether it is loaded at the start.
        values: the settings among its keys.
    """

    name: str
    file: str
    aliases: tuple[str, ...]
    preload: bool
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """One model with the settings that hold for it.

    Attributes:
        table: as it stands in the file.
        settings: in force for this model; `model` is its file.
        origin: where the table stands.
        origins: where each setting of the model comes from, as far as somebody says something about it.
    """

    table: ModelTable
    settings: Settings
    origin: Origin
    origins: Mapping[str, Origin]


def read_tables(given: Any, config: Path) -> tuple[ModelTable, ...]:
    """The tables of a file.

    Raises:
        ConfigError: an unknown key, one that belongs elsewhere, a value that does not fit, or a name that comes twice.
    """
    where = f"config file {config}"
    if isinstance(given, Mapping):
        raise ConfigError(f"{where}: write [[model]] with two brackets, one such table for each model")
    if not given or not all(isinstance(table, Mapping) for table in given):
        raise ConfigError(f'{where}: model must be a text, or [[model]] tables with file = "..."')
    tables = tuple(
        _table(table, f"{where}: [[model]] number {number}", config) for number, table in enumerate(given, 1)
    )
    taken: dict[str, int] = {}
    for number, table in enumerate(tables):
        for name in (table.name, *table.aliases):
            if taken.setdefault(name.lower(), number) != number:
                raise ConfigError(f"{where}: two models are called {name!r}; give one of them another name")
    return tables


def _table(given: Mapping[str, Any], where: str, config: Path) -> ModelTable:
    known = (*OWN, *SHARED)
    own: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in known:
            raise ConfigError(f"{where}: {_misplaced(key, known)}")
        kind = OWN[key][0] if key in OWN else SETTINGS[key].kind
        try:
            checked = kind.check(value)
        except UnfitError as error:
            raise ConfigError(f"{where}: {key} must be {error}, not {value!r}") from None
        (own if key in OWN else values)[key] = checked
    if "file" not in own:
        raise ConfigError(f"{where} has no file; it needs file = followed by a GGUF file, or by a model in the box")
    file = beside(config, own["file"])
    name = own.get("name") or Path(file).name.removesuffix(".gguf")
    return ModelTable(name, file, own.get("aliases", ()), own.get("preload", False), values)


def _misplaced(key: str, known: Iterable[str]) -> str:
    if key in SETTINGS:
        return f"{key} is no setting of one model; it belongs at the top of the file, before the first [[model]]"
    close = difflib.get_close_matches(key, list(known), n=1, cutoff=0.0)
    return f"unknown key {key!r}" + (f"; did you mean {close[0]}?" if close else "")


def beside(config: Path, model: str) -> str:
    """A model's path in a file starts at that file's folder; ~ is the home folder; names are left alone.

    Raises:
        ConfigError: no such home folder is known.
    """
    if model.startswith("~"):
        try:
            return str(Path(model).expanduser())
        except RuntimeError:
            raise ConfigError(f"config file {config}: model {model!r}: no such home folder is known") from None
    if re.fullmatch(r"[\w.-]+/[\w.-]+:[\w.-]+", model):  # a pulled model
        return model
    return str(config.parent / model) if "/" in model else model
