"""Pieces of JSON schemas that several requests share. null is allowed wherever it means "not given"."""

from collections.abc import Iterable
from typing import Any

Schema = dict[str, Any]

ANY: Schema = {}
BUDGETS = (
    "thinking_budget", "thinking_budget_tokens", "reasoning_budget", "thinking_token_budget", "max_thinking_tokens",
)  # fmt: skip


def maybe(kind: str, **more: Any) -> Schema:
    """A value of a kind, or null."""
    return {"type": [kind, "null"], **more}


def one_of(*words: str) -> Schema:
    """One of a few words, or null."""
    return {"enum": [*words, None]}


def record(properties: Schema, required: Iterable[str] = (), *, closed: bool = True, null: bool = True) -> Schema:
    """An object."""
    kind = maybe("object") if null else {"type": "object"}
    names = list(required)
    return {
        **kind,
        "properties": properties,
        **({"required": names} if names else {}),
        **({"additionalProperties": False} if closed else {}),
    }


EFFORT = one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
STOP: Schema = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {"type": "array", "items": {"type": "string", "minLength": 1}},
        {"type": "null"},
    ]
}
MOST = maybe("integer", minimum=-1, description="0, -1 and null: what the context leaves")
SAMPLING: Schema = {
    "temperature": maybe("number", minimum=0),
    **{name: maybe("number", minimum=0, maximum=1) for name in ("top_p", "min_p", "typical_p")},
    **{name: maybe("number", minimum=-2, maximum=2) for name in ("frequency_penalty", "presence_penalty")},
    **{name: maybe("number", minimum=0.01, maximum=100) for name in ("repetition_penalty", "repeat_penalty")},
    **{name: maybe("integer", minimum=-1) for name in ("penalty_window", "repeat_last_n", "top_k")},
    "seed": maybe("integer"),
    "logit_bias": maybe(
        "object",
        patternProperties={"^[0-9]{1,9}$": {"type": "number", "minimum": -100, "maximum": 100}},
        additionalProperties=False,
    ),
}
THINKING: Schema = {
    "reasoning_effort": EFFORT,
    "reasoning": record(
        {
            "effort": EFFORT,
            "enabled": maybe("boolean"),
            "exclude": maybe("boolean"),
            "max_tokens": maybe("integer", minimum=-1),
            "summary": ANY,
            "generate_summary": ANY,
        }
    ),
    "thinking": record(
        {
            "type": one_of("enabled", "adaptive", "auto", "disabled"),
            "budget_tokens": maybe("integer", minimum=0),
            "display": one_of("summarized", "full", "omitted"),
            "clear_thinking": maybe("boolean"),
        }
    ),
    "output_config": record({"effort": EFFORT}),
    "enable_thinking": maybe("boolean"),
    "think": {"anyOf": [maybe("boolean"), EFFORT]},
    "include_reasoning": maybe("boolean"),
    **{name: maybe("integer", minimum=-1) for name in BUDGETS},
    "chat_template_kwargs": record(
        {
            **{n: maybe("boolean") for n in ("enable_thinking", "thinking", "preserve_thinking", "clear_thinking")},
            "reasoning_effort": EFFORT,
            "thinking_budget": maybe("integer", minimum=-1),
        }
    ),
}
FORMS: Schema = {
    "response_format": record(
        {"type": {"enum": ["text", "json_object", "json_schema", "regex", "lark", "gbnf", "grammar"]}},
        ["type"],
        closed=False,
    ),
    **{name: {"type": ["object", "string", "boolean", "null"]} for name in ("json_schema", "guided_json")},
    **{name: maybe("string") for name in ("grammar", "guided_grammar", "guided_regex")},
    "guided_choice": maybe("array", items={"type": "string", "minLength": 1}, minItems=1),
    "structured_outputs": record(
        {
            "json": {"type": ["object", "string", "boolean", "null"]},
            "json_object": maybe("boolean"),
            "regex": maybe("string"),
            "grammar": maybe("string"),
            "choice": maybe("array", items={"type": "string", "minLength": 1}, minItems=1),
        }
    ),
}
STREAM: Schema = {
    "stream": maybe("boolean"),
    "stream_options": record(
        {"include_usage": maybe("boolean"), "include_obfuscation": ANY, "continuous_usage_stats": ANY}
    ),
    "return_progress": maybe("boolean"),
}
NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[^<>\\n\\r\\x00]+$"}
FUNCTION = record(
    {"name": NAME, "description": maybe("string"), "parameters": maybe("object")}, ["name"], closed=False, null=False
)
CONTENT: Schema = {"type": ["string", "array", "null"], "description": "a text, or parts or blocks of text"}
