"""The schemas of requests."""

from collections.abc import Iterable

from strata.server.dialects.anthropic.request import IGNORED as MESSAGES_IGNORED
from strata.server.dialects.native.vram import MOST as MOST_VRAM
from strata.server.dialects.openai.chat import IGNORED as CHAT_IGNORED
from strata.server.dialects.responses.request import IGNORED as RESPONSES_IGNORED
from strata.server.openapi.parts import (
    ANY,
    CONTENT,
    EFFORT,
    FORMS,
    FUNCTION,
    MOST,
    NAME,
    SAMPLING,
    STOP,
    STREAM,
    THINKING,
    Schema,
    maybe,
    one_of,
    record,
)


def _ignored(names: Iterable[str]) -> Schema:
    return dict.fromkeys(sorted(names), ANY)


def _listed(item: Schema, **more: object) -> Schema:
    return {"type": "array", "items": item, **more}


def chat() -> Schema:
    """/v1/chat/completions."""
    message = record({"role": {"type": "string"}, "content": CONTENT}, ["role"], closed=False, null=False)
    tool = {
        "anyOf": [
            record({"type": one_of("function"), "function": FUNCTION}, ["function"], closed=False, null=False),
            record(
                {"type": {"const": "custom"}, "custom": record({"name": NAME}, ["name"], closed=False, null=False)},
                ["type", "custom"],
                closed=False,
                null=False,
            ),
        ]
    }
    choice = {"anyOf": [one_of("auto", "none", "required"), {"type": "object"}]}
    return record(
        {
            **_ignored(CHAT_IGNORED),
            "model": maybe("string"),
            "messages": _listed(message, minItems=1),
            "tools": maybe("array", items=tool),
            "tool_choice": choice,
            "parallel_tool_calls": maybe("boolean"),
            "max_tokens": MOST,
            "max_completion_tokens": MOST,
            "n": maybe("integer", minimum=1, maximum=16),
            "stop": STOP,
            "logprobs": maybe("boolean"),
            "top_logprobs": maybe("integer", minimum=0, maximum=20),
            "priority": maybe("integer", minimum=-1000, maximum=1000),
            "usage": record({"include": maybe("boolean")}),
            "modalities": {"enum": [["text"], None]},
            "reasoning_format": one_of("auto", "deepseek"),
            "best_of": {"enum": [1, None]},
            "continue_final_message": maybe("boolean"),
            "add_generation_prompt": maybe("boolean"),
            **SAMPLING,
            **THINKING,
            **FORMS,
            **STREAM,
        },
        ["messages"],
        null=False,
    )


def completion() -> Schema:
    """/v1/completions."""
    ids = _listed({"type": "integer", "minimum": 0}, minItems=1)
    text = {"type": "string", "minLength": 1}
    prompt = {"anyOf": [text, _listed(text, minItems=1), ids, _listed(ids, minItems=1)]}
    return record(
        {
            **_ignored(CHAT_IGNORED),
            "model": maybe("string"),
            "prompt": prompt,
            "suffix": maybe("string"),
            "n": maybe("integer", minimum=1, maximum=16),
            "best_of": maybe("integer", minimum=1),
            "echo": maybe("boolean"),
            "logprobs": maybe("integer", minimum=0, maximum=20),
            "max_tokens": MOST,
            "max_completion_tokens": MOST,
            "stop": STOP,
            "priority": maybe("integer", minimum=-1000, maximum=1000),
            **SAMPLING,
            **FORMS,
            **STREAM,
        },
        ["prompt"],
        null=False,
    )


def response() -> Schema:
    """/v1/responses."""
    form = record({"type": one_of("text", "json_object", "json_schema")}, closed=False)
    return record(
        {
            **_ignored(RESPONSES_IGNORED),
            "model": maybe("string"),
            "input": {"anyOf": [{"type": "string"}, _listed({"type": ["object", "string"]}, minItems=1)]},
            "instructions": maybe("string"),
            "tools": maybe("array", items={"type": "object"}),
            "tool_choice": {"anyOf": [one_of("auto", "none", "required"), {"type": "object"}]},
            "parallel_tool_calls": maybe("boolean"),
            "max_output_tokens": MOST,
            "max_tool_calls": maybe("integer", minimum=1),
            "top_logprobs": maybe("integer", minimum=0, maximum=20),
            "include": maybe("array"),
            "text": record({"format": form, "verbosity": ANY}),
            "store": maybe("boolean"),
            "previous_response_id": maybe("string"),
            "background": {"enum": [False, None]},
            "stream": maybe("boolean"),
            **SAMPLING,
            **THINKING,
        },
        ["input"],
        null=False,
    )


def message() -> Schema:
    """/v1/messages and the count of its tokens."""
    turn = record(
        {"role": {"enum": ["user", "assistant", "system"]}, "content": CONTENT}, ["role"], closed=False, null=False
    )
    tool = record({"name": NAME, "input_schema": maybe("object")}, ["name"], closed=False, null=False)
    choice = record(
        {
            "type": one_of("auto", "any", "none", "tool"),
            "name": maybe("string"),
            "disable_parallel_tool_use": maybe("boolean"),
        },
        closed=False,
    )
    form = maybe("object")
    return record(
        {
            **_ignored(MESSAGES_IGNORED),
            "model": maybe("string"),
            "messages": _listed(turn, minItems=1),
            "system": {"type": ["string", "array", "null"]},
            "max_tokens": MOST,
            "stop_sequences": STOP,
            "temperature": SAMPLING["temperature"],
            "top_p": SAMPLING["top_p"],
            "top_k": SAMPLING["top_k"],
            "seed": SAMPLING["seed"],
            "tools": maybe("array", items=tool),
            "tool_choice": choice,
            "thinking": THINKING["thinking"],
            "output_config": record({"effort": EFFORT, "format": form, "task_budget": ANY}),
            "output_format": form,
            "stream": maybe("boolean"),
        },
        ["messages"],
        null=False,
    )


def load() -> Schema:
    """/v1/models/load and unload."""
    return record({"model": maybe("string"), "wait": maybe("boolean")}, null=False)


def tokenize() -> Schema:
    """/tokenize: a text, or all that a chat request may have."""
    text = record(
        {
            "content": {"type": "string"},
            "model": maybe("string"),
            "with_pieces": maybe("boolean"),
            "parse_special": maybe("boolean"),
            "add_special": maybe("boolean"),
            "add_special_tokens": ANY,
            "return_token_strs": ANY,
        },
        ["content"],
        null=False,
    )
    return {"anyOf": [text, {"$ref": "#/components/schemas/ChatRequest"}]}


def detokenize() -> Schema:
    """/detokenize."""
    ids = _listed({"type": "integer", "minimum": 0})
    return record({"tokens": ids, "model": maybe("string")}, ["tokens"], null=False)


def vram() -> Schema:
    """/v1/strata/vram."""
    size = {
        "anyOf": [
            {"type": "integer", "minimum": 1, "maximum": MOST_VRAM},
            {"type": "string", "pattern": "^[1-9][0-9]{0,5} ?([kKmMgG]i?)?[bB]?$"},
        ],
        "description": "bytes, or a text such as 12GB: all that the model may take of its GPU's memory",
    }
    return record({"vram": size, "model": maybe("string")}, ["vram"], null=False)
