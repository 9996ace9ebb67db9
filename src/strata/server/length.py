"""Whether a text can fit into a context, found without reading all of it where it is many times too long."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from strata.server.errors import ApiError
from strata.text import Tokenizer

LONG = 8
"""Characters for each token of the context from which on a text is looked at here; most texts have three to five."""

SLICE = 1 << 15
"""Characters that are read at a time."""

_SLACK = 16
"""Tokens that a cut between two slices may add, and more."""


def too_long(count: str, context: int, name: str | None = None) -> ApiError:
    """The error of a prompt that does not fit."""
    text = (
        f"the prompt has {count} tokens, but the context holds {context} and the answer needs room for at least one; "
        "shorten the prompt"
    )
    return ApiError(400, text, param=name, code="context_length_exceeded")


def check_length(texts: Sequence[str], tokenizer: Tokenizer, context: int, name: str | None = None) -> None:
    """Refuse texts that together are surely longer than the context.

    Args:
        texts: that will all be in one prompt.
        tokenizer: of the model.
        context: tokens that it holds.
        name: of the field they come from.

    Raises:
        ApiError: they do not fit; how long they are beyond that is not counted.
    """
    if sum(map(len, texts)) <= max(LONG * context, SLICE):
        return
    count = 0
    for part in _slices(texts):
        count += len(tokenizer.encode(part)) - _SLACK
        if count > context:
            raise too_long(f"more than {count}", context, name)


def _slices(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for start in range(0, len(text), SLICE):
            yield text[start : start + SLICE]


def texts_of(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is said in messages: their contents, as texts or in parts."""
    found: list[str] = []
    for message in messages:
        content = message.get("content") if isinstance(message, Mapping) else None
        parts = content if isinstance(content, list) else [content]
        for part in parts:
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                found.append(text)
    return found
