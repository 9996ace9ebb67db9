"""A request to /v1/messages."""

from typing import Any

from strata.server.ask import Ask
from strata.server.dialects.anthropic.content import read_messages, read_system
from strata.server.dialects.anthropic.tools import read_tools
from strata.server.dialects.openai.sampling import read_most
from strata.server.errors import bad
from strata.server.fields import Fields, shown
from strata.server.forms import of_schema
from strata.server.options import Options
from strata.server.thinking import Found, read_anthropic

IGNORED = frozenset({
    "metadata", "service_tier", "context_management", "anthropic_beta", "anthropic_version", "betas", "inference_geo",
    "cache_control", "speed", "user_profile_id", "diagnostics", "workspace_id", "billing_policy", "fallbacks",
    "compaction",
})  # fmt: skip
"""Fields that change nothing here, for reasons that docs/server.md gives."""


def read_message(body: dict[str, Any], options: Options, client: str) -> Ask:
    """Read a request.

    Raises:
        ApiError: names the field that is wrong.
    """
    fields = Fields(body, strict=options.strict)
    fields.any("model")
    messages = (*read_system(fields.any("system")), *read_messages(fields.any("messages")))
    found = Found()
    read_anthropic(fields.object("thinking"), found)
    form = _form(fields, found)
    _check_thread(fields.object("thread"))
    sampling = {name: fields.number(name) for name in ("temperature", "top_p")}
    sampling |= {"top_k": fields.integer("top_k"), "seed": fields.integer("seed")}
    ask = Ask(
        messages=messages,
        tools=read_tools(fields),
        thinking=found.thinking(default=False, options=options),
        sampling={name: value for name, value in sampling.items() if value is not None},
        max_tokens=read_most(fields, "max_tokens"),
        stop=fields.any("stop_sequences"),
        form=form,
        stream=fields.flag("stream") or False,
        client=client,
    )
    fields.end(IGNORED)
    return ask


def _check_thread(thread: Fields | None) -> None:
    """A conversation that the server would keep: beginning one is a wish that costs nothing, going on needs one."""
    if thread is None or thread.any("type") == "create":
        return
    raise bad("thread is not supported; send the whole conversation as messages", "thread", "unsupported_parameter")


def _form(fields: Fields, found: Found) -> dict[str, Any] | None:
    """The form of the answer, and the effort, which stands beside it."""
    form = fields.any("output_format")
    output = fields.object("output_config")
    if output is not None:
        found.level(output.any("effort"), "output_config.effort")
        form = output.any("format") or form
        output.end(("task_budget",))
    if form is None:
        return None
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise bad(
            f'the output format must be {{"type": "json_schema", "schema": ...}}, not {shown(form)}', "output_config"
        )
    return of_schema(form.get("schema"), "output_config.format.schema")
