"""A request to /v1/chat/completions."""

from dataclasses import dataclass
from typing import Any

from strata.server.ask import Ask
from strata.server.dialects.openai.sampling import read_most, read_sampling
from strata.server.dialects.openai.tools import read_tools
from strata.server.errors import bad
from strata.server.fields import Fields
from strata.server.forms import read_form
from strata.server.options import Options
from strata.server.thinking import read_thinking

IGNORED = frozenset({
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "verbosity", "prediction", "cache_prompt", "id_slot", "timings_per_token", "provider", "transforms", "route",
    "models", "skip_special_tokens", "spaces_between_special_tokens", "session_id", "chat_id", "request_id",
    "litellm_call_id", "prompt_cache_options", "moderation",
})  # fmt: skip
"""Fields that change nothing here, for reasons that docs/server.md gives."""

MOST = 16
"""Answers to one request."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the answer is to be written.

    Attributes:
        usage: a stream ends with usage.
        progress: a stream reports how far the prompt is read.
    """

    usage: bool = False
    progress: bool = False


def read_chat(body: dict[str, Any], options: Options, client: str) -> tuple[Ask, Wishes]:
    """Read a request.

    Raises:
        ApiError: names the field that is wrong.
    """
    fields = Fields(body, strict=options.strict)
    fields.any("model")
    messages = fields.items("messages")
    if messages is None:
        raise bad("messages is missing; expected a list of messages", "messages")
    ask = Ask(
        messages=tuple(messages),
        tools=read_tools(fields),
        thinking=read_thinking(fields, options),
        sampling=read_sampling(fields),
        max_tokens=read_most(fields, "max_completion_tokens", "max_tokens"),
        stop=fields.any("stop"),
        logprobs=_logprobs(fields),
        form=read_form(fields),
        n=_count(fields),
        stream=fields.flag("stream") or False,
        priority=fields.integer("priority", -1000, 1000) or 0,
        client=client,
    )
    wishes = _wishes(fields)
    _check_few(fields, messages)
    fields.end(IGNORED)
    return ask, wishes


def _count(fields: Fields) -> int:
    n = fields.integer("n", 1, MOST)
    return 1 if n is None else n


def _logprobs(fields: Fields) -> int | None:
    wanted, top = fields.flag("logprobs"), fields.integer("top_logprobs", 0, 20)
    if top and not wanted:
        raise bad("top_logprobs needs logprobs: true", "top_logprobs")
    return (top or 0) if wanted else None


def _wishes(fields: Fields) -> Wishes:
    usage = False
    for name, word in (("stream_options", "include_usage"), ("usage", "include")):
        inner = fields.object(name)
        if inner is not None:
            usage = inner.flag(word) or usage
            inner.end(("include_obfuscation", "continuous_usage_stats"))
    return Wishes(usage, fields.flag("return_progress") or False)


def _check_few(fields: Fields, messages: list[Any]) -> None:
    """Fields of which one value is what is done anyway."""
    for name, fine in (("modalities", (["text"],)), ("reasoning_format", ("auto", "deepseek")), ("best_of", (1,))):
        value = fields.any(name)
        if value is not None and value not in fine:
            raise bad(f"{name} must be {' or '.join(map(str, fine))}; nothing else is supported", name)
    last = messages[-1] if messages else None
    continues = isinstance(last, dict) and last.get("role") == "assistant"
    if fields.flag("continue_final_message") and not continues:
        raise bad("continue_final_message needs a last message of the assistant", "continue_final_message")
    if fields.flag("add_generation_prompt") is False and not continues:
        raise bad("add_generation_prompt must be true; without it there is nothing to answer", "add_generation_prompt")
