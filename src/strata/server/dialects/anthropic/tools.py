"""Anthropic's tools and tool_choice."""

from typing import Any

from strata.server.ask import Tools
from strata.server.dialects.openai.tools import check_number, choose, read_function
from strata.server.errors import bad
from strata.server.fields import Fields, shown

HOSTED = ("web_search_", "web_fetch_", "code_execution_", "tool_search_", "mcp_toolset")
"""Beginnings of the types of tools that Anthropic itself would run; they are left out."""

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def read_tools(fields: Fields) -> Tools:
    """What may be called, and what must be."""
    declared: list[dict[str, Any]] = []
    listed = fields.items("tools") or []
    check_number(listed)
    for place, value in enumerate(listed):
        tool = Fields(value, f"tools[{place}].")
        kind = tool.any("type")
        if isinstance(kind, str) and kind.startswith(HOSTED):
            continue
        if kind not in (None, "custom", "function"):
            raise bad(
                f"tools[{place}].type is {shown(kind)}; only custom tools, with an input_schema, are supported",
                f"tools[{place}].type",
            )
        function = {
            "name": tool.any("name"),
            "description": tool.any("description"),
            "parameters": tool.any("input_schema"),
        }
        declared.append({"type": "function", "function": read_function(function, f"tools[{place}]")})
    choice = fields.object("tool_choice")
    if choice is None:
        return choose(declared, set(), None, parallel=True)
    kind = choice.text("type", *_CHOICES, "tool")
    parallel = choice.flag("disable_parallel_tool_use") is not True
    if kind == "tool":
        name = choice.any("name")
        choice.end()
        return choose(declared, set(), {"type": "function", "name": name}, parallel=parallel)
    choice.end()
    return choose(declared, set(), _CHOICES.get(kind or "auto"), parallel=parallel)
