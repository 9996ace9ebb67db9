"""`strata config`: the settings in force and where each comes from."""

from typing import Annotated

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.table import table
from strata.config.settings import SETTINGS


def config(*, context: Annotated[Context, Parameter(parse=False)]) -> int:
    """Show the settings in force and where each comes from.

    Flags win over the environment, the environment over the config file, the config file over the defaults. The last
    line names the config file that was read.
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
        )
        return 0
    rows = [
        (name, SETTINGS[name].default_in_words if value is None else str(value), str(resolved.origins[name]))
        for name, value in values.items()
    ]
    rows.append(("config", file or "no file", str(asked)))
    context.output.text(table(("Setting", "Value", "From"), rows))
    return 0
