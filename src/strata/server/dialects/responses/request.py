"""A request to /v1/responses."""

from dataclasses import dataclass
from typing import Any

from strata.server.ask import Ask
from strata.server.dialects.openai.sampling import read_most, read_sampling
from strata.server.dialects.responses.items import read_items
from strata.server.dialects.responses.tools import read_tools
from strata.server.errors import bad
from strata.server.fields import Fields
from strata.server.forms import of_schema
from strata.server.options import Options
from strata.server.thinking import read_thinking

IGNORED = frozenset({
    "metadata", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store",
    "truncation", "stream_options", "client_metadata",
})  # fmt: skip
"""Fields that change nothing here, for reasons that docs/server.md gives."""


@dataclass(frozen=True, slots=True)
class Echo:
    """What of the request is in the answer.

    Attributes:
        fields: values that the response repeats.
        spaces: namespace of each function that has one.
        sealed: whether thoughts also come packed, for a client that sends back nothing else.
    """

    fields: dict[str, Any]
    spaces: dict[str, str]
    sealed: bool


def read_response(body: dict[str, Any], options: Options, client: str) -> tuple[Ask, Echo]:
    """Read a request.

    Raises:
        ApiError: names the field that is wrong.
    """
    fields = Fields(body)
    fields.any("model")
    _refuse_state(fields)
    include = fields.items("include") or []
    instructions = fields.text("instructions")
    tools, spaces = read_tools(fields)
    top = fields.integer("top_logprobs", 0, 20)
    ask = Ask(
        messages=tuple(read_items(fields.any("input"), instructions)),
        tools=tools,
        thinking=read_thinking(fields, options),
        sampling=read_sampling(fields),
        max_tokens=read_most(fields, "max_output_tokens"),
        logprobs=(top or 0) if "message.output_text.logprobs" in include else None,
        form=_form(fields),
        stream=fields.flag("stream") or False,
        client=client,
    )
    if fields.integer("max_tool_calls", 1) is not None and tools.declared:
        raise bad("max_tool_calls is not supported; parallel_tool_calls: false allows one call", "max_tool_calls")
    fields.end(IGNORED, strict=options.strict)
    return ask, Echo(_repeated(body, instructions), spaces, "reasoning.encrypted_content" in include)


def _refuse_state(fields: Fields) -> None:
    """Nothing is stored, so nothing can be gone on with by its name."""
    for name in ("previous_response_id", "conversation", "prompt"):
        if name in fields:
            raise bad(
                f"{name} is not supported: this server stores no responses; send the whole conversation as input",
                name,
                "unsupported_parameter",
            )
    if fields.flag("background"):
        raise bad("background is not supported: this server stores no responses", "background", "unsupported_parameter")


def _form(fields: Fields) -> dict[str, Any] | None:
    text = fields.object("text")
    if text is None:
        return None
    form = text.object("format")
    text.end(("verbosity",))
    if form is None:
        return None
    kind = form.text("type", "text", "json_object", "json_schema")
    if kind == "json_schema":
        return of_schema(form.any("schema"), "text.format.schema")
    return {"type": "json_object"} if kind == "json_object" else None


def _repeated(body: dict[str, Any], instructions: str | None) -> dict[str, Any]:
    reasoning, text = body.get("reasoning"), body.get("text")
    return {
        "instructions": instructions,
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "parallel_tool_calls": body.get("parallel_tool_calls") is not False,
        "previous_response_id": None,
        "reasoning": reasoning if isinstance(reasoning, dict) else {"effort": None, "summary": None},
        "store": False,
        "temperature": body.get("temperature"),
        "text": text if isinstance(text, dict) else {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        "truncation": "disabled",
    }
