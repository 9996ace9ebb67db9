"""A request to /v1/completions."""

from typing import Any

from strata.errors import TextError
from strata.server.ask import Ask
from strata.server.dialects.openai.chat import IGNORED as CHAT_IGNORED
from strata.server.dialects.openai.chat import MOST, Wishes
from strata.server.dialects.openai.sampling import read_most, read_sampling
from strata.server.errors import bad
from strata.server.fields import Fields, shown
from strata.server.forms import read_form
from strata.server.length import check_length
from strata.server.options import Options
from strata.text import Tokenizer

IGNORED = CHAT_IGNORED
PROMPTS = 64
"""Prompts of one request, times answers to each."""


def read_completion(
    body: dict[str, Any],
    tokenizer: Tokenizer,
    vocabulary: int,
    options: Options,
    client: str,
    context: int | None = None,
) -> tuple[Ask, Wishes, bool]:
    """Read a request; the last of what comes back says whether the prompt is repeated before the answer.

    `context` is how many tokens the model holds, if that is known.

    Raises:
        ApiError: names the field that is wrong, or the prompt does not fit.
    """
    fields = Fields(body, strict=options.strict)
    fields.any("model")
    suffix = fields.text("suffix")
    if context is not None:
        given = body.get("prompt")
        for text in (*(given if isinstance(given, list) else [given]), suffix):
            if isinstance(text, str):
                check_length([text], tokenizer, context, "prompt")
    texts = read_prompts(fields.any("prompt"), tokenizer, vocabulary)
    if suffix:
        texts = [_around(ids, suffix, tokenizer) for ids in texts]
    n = fields.integer("n", 1, MOST)
    best = fields.integer("best_of", 1)
    if best is not None and best != (n or 1):
        raise bad("best_of must be n; choosing among more answers is not supported", "best_of")
    if len(texts) * (n or 1) > PROMPTS:
        raise bad(f"the request asks for {len(texts) * (n or 1)} answers; {PROMPTS} are the most at a time", "prompt")
    echo = fields.flag("echo") or False
    logprobs = fields.integer("logprobs", 0, 20)
    if echo and logprobs is not None:
        raise bad("echo together with logprobs is not supported: probabilities of the prompt are not computed", "echo")
    if echo and suffix:
        raise bad("echo together with suffix is not supported", "echo")
    wishes = _wishes(fields)
    ask = Ask(
        prompts=tuple(tuple(ids) for ids in texts),
        sampling=read_sampling(fields),
        max_tokens=read_most(fields, "max_tokens", "max_completion_tokens"),
        stop=fields.any("stop"),
        logprobs=logprobs,
        form=read_form(fields),
        n=n or 1,
        stream=fields.flag("stream") or False,
        priority=fields.integer("priority", -1000, 1000) or 0,
        client=client,
    )
    fields.end(IGNORED)
    return ask, wishes, echo


def read_prompts(value: Any, tokenizer: Tokenizer, vocabulary: int) -> list[list[int]]:
    """Prompts as token ids, from a text, texts, ids, or lists of ids.

    Raises:
        ApiError: it is something else, empty, or has an id that is none.
    """
    if isinstance(value, str):
        return [_encoded(value, tokenizer, "prompt")]
    if not isinstance(value, list) or not value:
        raise bad(
            f"prompt must be a text, a list of texts, a list of token ids, or a list of such lists, not {shown(value)}",
            "prompt",
        )
    if all(isinstance(one, str) for one in value):
        return [_encoded(one, tokenizer, f"prompt[{place}]") for place, one in enumerate(value)]
    listed = value if all(isinstance(one, list) for one in value) else [value]
    for ids in listed:
        wrong = [one for one in ids if isinstance(one, bool) or not isinstance(one, int)]
        if wrong:
            raise bad(f"prompt holds {shown(wrong[0])} among token ids", "prompt")
        outside = next((one for one in ids if not 0 <= one < vocabulary), None)
        if outside is not None:
            raise bad(f"token id {outside} of the prompt is outside the vocabulary of {vocabulary}", "prompt")
        if not ids:
            raise bad("a prompt is empty; it needs at least one token", "prompt")
    return [list(ids) for ids in listed]


def _encoded(text: str, tokenizer: Tokenizer, name: str) -> list[int]:
    if not text:
        raise bad(f"{name} is empty; it needs at least one token", "prompt")
    return tokenizer.encode(text)


def _around(ids: list[int], suffix: str, tokenizer: Tokenizer) -> list[int]:
    """A prompt that asks for what stands between two texts, with the tokens that models have for it."""
    names = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    tags = [tokenizer.id_of(name) for name in names]
    if None in tags:
        raise bad("suffix is not supported by this model: it has no tokens for filling in", "suffix")
    before, between, middle = (tag for tag in tags if tag is not None)
    try:
        return [before, *ids, between, *tokenizer.encode(suffix), middle]
    except TextError as wrong:
        raise bad(f"suffix: {wrong}", "suffix") from None


def _wishes(fields: Fields) -> Wishes:
    inner = fields.object("stream_options")
    usage = False
    if inner is not None:
        usage = inner.flag("include_usage") or False
        inner.end(("include_obfuscation", "continuous_usage_stats"))
    return Wishes(usage, fields.flag("return_progress") or False)
