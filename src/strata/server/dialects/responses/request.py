"""A request to /v1/responses."""

from dataclasses import dataclass
from typing import Any

from strata.server.ask import Ask
from strata.server.dialects.openai.sampling import read_most, read_sampling
from strata.server.dialects.responses.items import read_items
from strata.server.dialects.responses.store import Store
from strata.server.dialects.responses.tools import read_tools
from strata.server.errors import bad
from strata.server.fields import Fields
from strata.server.forms import of_schema
from strata.server.options import Options
from strata.server.thinking import read_thinking

IGNORED = frozenset({
    "metadata", "service_tier", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "truncation", "stream_options", "client_metadata", "prompt_cache_options", "moderation",
})  # fmt: skip
"""Fields that change nothing here, for reasons that docs/server.md gives."""


@dataclass(frozen=True, slots=True)
class Echo:
    """What of the request is in the answer.

    Attributes:
        fields: values that the response repeats.
        spaces: namespace of each function that has one.
        sealed: whether thoughts also come packed, for a client that sends back nothing else.
        items: the conversation up to here.
        stored: whether the response is to be kept.
        client: whose it is.
    """

    fields: dict[str, Any]
    spaces: dict[str, str]
    sealed: bool
    items: tuple[Any, ...] = ()
    stored: bool = False
    client: str = ""


def read_response(body: dict[str, Any], options: Options, client: str, store: Store) -> tuple[Ask, Echo]:
    """Read a request; `store` has the responses it may go on from.

    Raises:
        ApiError: names the field that is wrong.
    """
    fields = Fields(body, strict=options.strict)
    fields.any("model")
    _refuse_state(fields)
    include = fields.items("include") or []
    instructions = fields.text("instructions")
    tools, spaces = read_tools(fields)
    top = fields.integer("top_logprobs", 0, 20)
    given = fields.any("input")
    if given is None:
        raise bad("input is missing; it must be a text or a list of items", "input")
    items: Any = given
    if "previous_response_id" in fields:
        before = store.before(fields.any("previous_response_id"), client)
        items = [*before, *(given if isinstance(given, list) else [given])]
    ask = Ask(
        messages=tuple(read_items(items, instructions)),
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
    stored = fields.flag("store") is not False and store.most > 0
    fields.end(IGNORED)
    repeated = _repeated(body, instructions) | {"store": stored}
    sealed = "reasoning.encrypted_content" in include
    return ask, Echo(repeated, spaces, sealed, tuple(items if isinstance(items, list) else [items]), stored, client)


def _refuse_state(fields: Fields) -> None:
    """What only a service with a memory of its own has."""
    for name in ("conversation", "prompt"):
        if name in fields:
            raise bad(f"{name} is not supported; send the whole conversation as input", name, "unsupported_parameter")
    if fields.flag("background"):
        raise bad("background is not supported", "background", "unsupported_parameter")


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
        "previous_response_id": body.get("previous_response_id"),
        "reasoning": reasoning if isinstance(reasoning, dict) else {"effort": None, "summary": None},
        "temperature": body.get("temperature"),
        "text": text if isinstance(text, dict) else {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice") or "auto",
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        "truncation": "disabled",
    }
