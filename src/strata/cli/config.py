"""`strata config`: the settings in force and where each comes from."""

from typing import Annotated, Any

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.table import table
from strata.config import ModelSettings
from strata.config.settings import SETTINGS


def config(*, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Show the settings in force and where each comes from.

    Flags win over the environment, the environment over the config file, the config file over the defaults. The last
    line names the config file that was read. Behind the settings come those of each model of the config file, as far as
    something is said about them.
    """
    resolved = context.resolve()
    values = {name: getattr(resolved.settings, name) for name in SETTINGS}
    if values["api_key"] is not None:
        values["api_key"] = "(set)"  # it would end in logs and screenshots
    file, asked = None if resolved.file is None else str(resolved.file), resolved.file_origin
    if context.output.json:
        context.output.record(
            {
                name: {
                    "value": value,
                    "origin": {"source": resolved.origins[name].source, "name": resolved.origins[name].name},
                }
                for name, value in values.items()
            }
            | {"config": {"value": file, "origin": {"source": asked.source, "name": asked.name}}}
            | {"models": [_recorded(model) for model in resolved.models]}
        )
        return 0
    rows = [
        (name, SETTINGS[name].default_in_words if value is None else str(value), str(resolved.origins[name]))
        for name, value in values.items()
    ]
    for model in resolved.models:
        rows += [(f"{model.table.name}: {name}", value, origin) for name, value, origin in _rows(model)]
    rows.append(("config", file or "no file", str(asked)))
    context.output.text(table(("Setting", "Value", "From"), rows))
    return 0


def _rows(model: ModelSettings) -> list[tuple[str, str, str]]:
    """What is said about one model: key, value, and where it comes from."""
    table = model.table
    own = [("file", table.file), ("aliases", ", ".join(table.aliases)), ("preload", "True" if table.preload else "")]
    rows = [(name, value, str(model.origin)) for name, value in own if value]
    return rows + [(name, str(getattr(model.settings, name)), str(origin)) for name, origin in model.origins.items()]


def _recorded(model: ModelSettings) -> dict[str, Any]:
    table, where = model.table, model.origin
    own = {"name": table.name, "file": table.file, "aliases": list(table.aliases), "preload": table.preload}
    said = {name: (getattr(model.settings, name), origin) for name, origin in model.origins.items()}
    return {
        name: {"value": value, "origin": {"source": origin.source, "name": origin.name}}
        for name, (value, origin) in ({name: (value, where) for name, value in own.items()} | said).items()
    }
