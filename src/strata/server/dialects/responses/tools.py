"""Tools of a response: functions and free-form tools are kept, hosted ones are left out."""

from typing import Any

from strata.server.ask import Tools
from strata.server.dialects.openai.tools import check_number, choose, custom_function, read_function
from strata.server.errors import bad
from strata.server.fields import Fields, shown

HOSTED = (
    "web_search", "file_search", "code_interpreter", "image_generation", "mcp", "computer", "local_shell", "shell",
    "apply_patch", "tool_search", "programmatic",
)  # fmt: skip
"""Beginnings of the types of tools that OpenAI itself would run, or that only its own models know."""


def read_tools(fields: Fields) -> tuple[Tools, dict[str, str]]:
    """What may be called, and the namespace of each function that has one."""
    declared: list[dict[str, Any]] = []
    custom: set[str] = set()
    spaces: dict[str, str] = {}
    listed = fields.items("tools") or []
    check_number(listed)
    for place, value in enumerate(listed):
        _read(value, f"tools[{place}]", declared, custom, spaces)
    choice = fields.any("tool_choice")
    if isinstance(choice, dict) and choice.get("type") not in ("function", "custom"):
        raise bad(f"tool_choice of the type {shown(choice.get('type'))} is not supported", "tool_choice")
    parallel = fields.flag("parallel_tool_calls")
    return choose(declared, custom, choice, parallel=parallel is not False), spaces


def _read(
    value: Any, where: str, declared: list[dict[str, Any]], custom: set[str], spaces: dict[str, str], space: str = ""
) -> None:
    tool = Fields(value, f"{where}.")
    kind = tool.any("type")
    if kind == "namespace":
        name = tool.any("name")
        for place, inner in enumerate(tool.items("tools") or []):
            _read(inner, f"{where}.tools[{place}]", declared, custom, spaces, str(name or ""))
        return
    if kind == "function":
        function = read_function({key: tool.any(key) for key in ("name", "description", "parameters")}, where)
    elif kind == "custom":
        function = custom_function(tool)
        custom.add(function["name"])
    elif isinstance(kind, str) and kind.startswith(HOSTED):
        return
    else:
        raise bad(f"{where}.type is {shown(kind)}; this server knows function and custom tools", f"{where}.type")
    if space:
        spaces[function["name"]] = space
    declared.append({"type": "function", "function": function})
