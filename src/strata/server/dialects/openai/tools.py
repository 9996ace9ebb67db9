"""Tools and tool_choice of OpenAI's chat."""

import re
from typing import Any

from strata.server.ask import Tools
from strata.server.errors import bad
from strata.server.fields import Fields, shown

MOST = 4096
"""Tools of a request."""

_NAME = re.compile(r"[^<>\n\r\0]{1,256}")


def read_tools(fields: Fields) -> Tools:
    """What may be called, and what must be."""
    listed = fields.items("tools") or []
    custom: set[str] = set()
    declared: list[dict[str, Any]] = []
    check_number(listed)
    for place, value in enumerate(listed):
        tool = Fields(value, f"tools[{place}].")
        kind = tool.any("type") or "function"
        if kind == "custom":
            inner = tool.object("custom") or Fields({}, f"tools[{place}].custom.")
            function = custom_function(inner)
            custom.add(function["name"])
        elif kind == "function":
            function = read_function(tool.any("function"), f"tools[{place}].function")
        else:
            raise bad(f"tools[{place}].type is {shown(kind)}; expected function or custom", f"tools[{place}].type")
        declared.append({"type": "function", "function": function})
    parallel = fields.flag("parallel_tool_calls")
    choice = fields.any("tool_choice")
    return choose(declared, custom, choice, parallel=parallel is not False)


def check_number(listed: list[Any]) -> None:
    """Refuse more tools than a request may have."""
    if len(listed) > MOST:
        raise bad(f"the request has {len(listed)} tools; {MOST} are the most", "tools")


def read_function(value: Any, where: str) -> dict[str, Any]:
    """One function: name, description, parameters; `strict` is left out, for the template shows all there is."""
    function = Fields(value, f"{where}.")
    name = function.any("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise bad(f"{where}.name is {shown(name)}; expected a name of 1 to 256 characters without < and >", where)
    found: dict[str, Any] = {"name": name}
    description = function.any("description")
    if description is not None:
        if not isinstance(description, str):
            raise bad(f"{where}.description must be a text, not {shown(description)}", where)
        found["description"] = description
    parameters = function.any("parameters")
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise bad(f"{where}.parameters must be a JSON schema, an object, not {shown(parameters)}", where)
        properties = parameters.get("properties")
        for key in properties if isinstance(properties, dict) else ():
            if not _NAME.fullmatch(key):
                raise bad(
                    f"{where}.parameters has a property {shown(key)}; a model writes its name between < and >, so it "
                    "needs 1 to 256 characters without these and without line ends",
                    f"{where}.parameters",
                )
        found["parameters"] = parameters
    return found


def custom_function(tool: Fields) -> dict[str, Any]:
    """A tool whose input is a plain text, as a function with that text as its one parameter."""
    name, description = tool.any("name"), tool.text("description") or ""
    form = tool.any("format")
    if isinstance(form, dict) and form.get("type") == "grammar":
        inner = form.get("grammar", form)
        if isinstance(inner, dict) and isinstance(inner.get("definition"), str):
            description += f"\n\nThe input follows this grammar ({inner.get('syntax', 'lark')}):\n{inner['definition']}"
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    where = tool.where.rstrip(".")
    return read_function({"name": name, "description": description, "parameters": schema}, where)


def choose(declared: list[dict[str, Any]], custom: set[str], choice: Any, *, parallel: bool) -> Tools:
    """Tools as a choice leaves them: none at all, any, or one that must be called."""
    names = {tool["function"]["name"] for tool in declared}
    must, only = False, None
    if isinstance(choice, dict):
        kind = choice.get("type")
        named = choice.get(kind, choice) if kind in ("function", "custom") else None
        only = named.get("name") if isinstance(named, dict) else None
        if not isinstance(only, str):
            raise bad(
                'tool_choice must be auto, none, required, or {"type": "function", "function": {"name": ...}}',
                "tool_choice",
            )
        if only not in names:
            raise bad(f"tool_choice names {shown(only)}, which is not among the tools", "tool_choice")
        must = True
    elif choice == "required":
        must = True
    elif choice not in (None, "auto", "none"):
        raise bad(
            f"tool_choice must be auto, none, required or an object that names a function, not {shown(choice)}",
            "tool_choice",
        )
    if must and not declared:
        raise bad("tool_choice demands a call, but there are no tools", "tool_choice")
    if choice == "none":
        return Tools()
    return Tools(declared=tuple(declared), must=must, only=only, parallel=parallel, custom=frozenset(custom))
