"""What is asked, in whatever dialect: the one form behind all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """Whether and how the model thinks.

    Attributes:
        on: whether it does.
        effort: how hard, in the template's words; None is the template's default.
        budget: most tokens of it; None is no limit.
        shown: whether the client gets to see it.
        kept: whether past thinking stays in the prompt.
    """

    on: bool = True
    effort: str | None = None
    budget: int | None = None
    shown: bool = True
    kept: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the model may call.

    Attributes:
        declared: as functions, in OpenAI's form.
        must: an answer without a call is no answer.
        only: the one function that may be called.
        parallel: whether several calls may be made at once.
        custom: names of those whose input is a plain text, not JSON.
    """

    declared: tuple[Mapping[str, Any], ...] = ()
    must: bool = False
    only: str | None = None
    parallel: bool = True
    custom: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request.

    Attributes:
        messages: a conversation in OpenAI's form; None for raw prompts.
        prompts: token ids of raw prompts.
        tools: what may be called.
        thinking: whether and how to think.
        sampling: values of `strata.engine.Sampling` that the request names.
        max_tokens: most tokens of each answer; None is what fits.
        stop: texts that end an answer.
        logprobs: None, or how many of the likeliest tokens to report beside each chosen one.
        form: what the answer must look like, as `strata.text.grammar.Grammar.of` reads it.
        n: answers to each prompt.
        stream: whether the answer comes piece by piece.
        priority: higher goes first.
        client: who asks, for taking turns.
    """

    messages: tuple[Mapping[str, Any], ...] | None = None
    prompts: tuple[tuple[int, ...], ...] = ()
    tools: Tools = field(default_factory=Tools)
    thinking: Thinking = field(default_factory=Thinking)
    sampling: Mapping[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    stop: Any = None
    logprobs: int | None = None
    form: Any = None
    n: int = 1
    stream: bool = False
    priority: int = 0
    client: str = ""
