"""The grammar of tool calls, for answers that must be one or that have another form otherwise.

A call is written as in the chat template: parameters by name, each value on lines of its own. The grammar fixes what
nobody would want otherwise: a declared function, its parameters in the order in which the schema lists them, required
ones present, values of numbers, booleans, lists and objects as JSON of their schema. Values that may be strings are
free text, because that is how they are written.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llguidance import LLMatcher

from strata.errors import RequestError
from strata.text.grammar.panic import no_panic
from strata.text.output.schema import Tool, choices, kinds, read_tools, resolve
from strata.text.tokenizer import Tokenizer

_NAME = r"/[^<>\n]{1,256}/"


def calls_grammar(
    tools: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, *, only: str | None = None, parallel: bool = True
) -> str:
    """A grammar in llguidance's Lark: one call, or several.

    Args:
        tools: what is declared.
        tokenizer: whose tokens the model writes.
        only: the one function that may be called; None is any.
        parallel: whether several calls may follow each other.

    Raises:
        RequestError: no tool may be called.
        TextError: a tool has the wrong shape.
    """
    declared = [tool for name, tool in read_tools(tools).items() if only in {None, name}]
    if not declared:
        raise RequestError("no tool is declared that could be called" + (f" as {only!r}" if only else ""))
    opening, closing = (_tag(tokenizer, text) for text in ("<tool_call>", "</tool_call>"))
    functions = " | ".join(f"f{place}" for place in range(len(declared)))
    lines = [
        'start: call ("\\n" call)*' if parallel else "start: call",
        f'call: {opening} "\\n" ({functions}) "</function>\\n" {closing}',
        'text[suffix="\\n</parameter>\\n"]: /(?s:.*)/',
        f'other: "<parameter=" {_NAME} ">\\n" text',
    ]
    for place, tool in enumerate(declared):
        lines += _function(f"f{place}", tool)
    return "\n".join(lines)


def _tag(tokenizer: Tokenizer, text: str) -> str:
    number = tokenizer.id_of(text)
    return json.dumps(text) if number is None else f"<[{number}]>"


def _function(rule: str, tool: Tool) -> list[str]:
    required = resolve(tool.parameters, tool.parameters).get("required")
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    parts, values = [], []
    for place, (name, schema) in enumerate(tool.properties.items()):
        value = f"{rule}_{place}"
        begin = json.dumps(f"<parameter={name}>\n", ensure_ascii=False)
        parts.append(f"({begin} {value}){'' if name in needed else '?'}")
        values.append(f"{value}: {_value(schema, tool.parameters)}")
    if not tool.closed:
        parts.append("other*")
    head = json.dumps(f"<function={tool.name}>\n", ensure_ascii=False)
    return [f"{rule}: {' '.join([head, *parts])}", *values]


def _value(schema: Any, root: Mapping[str, Any]) -> str:
    """What stands between a parameter's tags, the closing one included."""
    listed = choices(schema, root)
    if listed is not None and all(isinstance(value, str) for value in listed):
        return "(" + " | ".join(json.dumps(value, ensure_ascii=False) for value in listed) + ') "\\n</parameter>\\n"'
    if "string" in kinds(schema, root):
        return "text"
    described = dict(schema) if isinstance(schema, Mapping) else {}
    for key in ("$defs", "definitions"):
        if key in root:
            described.setdefault(key, root[key])
    text = json.dumps(described, ensure_ascii=False)
    return f'%json {text if _usable(text) else "{}"} "\\n</parameter>\\n"'


def _usable(schema: str) -> bool:
    """Whether a grammar can be made of it; a tool's schema may be sloppy, and then any JSON will do."""
    try:
        with no_panic():
            return not LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(schema))
    except (ValueError, RequestError):
        return False
