"""Log-probabilities in the forms of chat and of completions."""

from collections.abc import Sequence
from typing import Any

from strata.api.reply import Chosen
from strata.text import Tokenizer


def of_chat(chosen: Sequence[Chosen], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """One entry a token, thoughts and tags among them."""
    return [
        {
            **_entry(token.bytes, token.logprob),
            "top_logprobs": [_entry(_bytes(tokenizer, number), logprob) for number, logprob in token.top],
        }
        for token in chosen
    ]


def of_completion(chosen: Sequence[Chosen], tokenizer: Tokenizer, start: int) -> dict[str, Any]:
    """Lists side by side; offsets are characters of the text, which begins at `start`."""
    tokens = [token.bytes.decode("utf-8", "replace") for token in chosen]
    offsets, place = [], start
    for text in tokens:
        offsets.append(place)
        place += len(text)
    return {
        "tokens": tokens,
        "token_logprobs": [token.logprob for token in chosen],
        "top_logprobs": [
            {_bytes(tokenizer, number).decode("utf-8", "replace"): logprob for number, logprob in token.top}
            for token in chosen
        ],
        "text_offset": offsets,
    }


def _entry(text: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(text)}


def _bytes(tokenizer: Tokenizer, number: int) -> bytes:
    """The bytes of a token; none of an id that a scripted engine made up."""
    return tokenizer.token_bytes(number) if 0 <= number < tokenizer.size else b""
