"""Log-probabilities in the forms of chat and of completions."""

import codecs
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


class Completion:
    r"""Lists side by side, for a text that comes in parts.

    A token that is no text of its own, because a character is cut, is written as OpenAI does: `bytes:\xf0\x9f`.
    Offsets are characters of the text; those of a cut character are where it stands.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._place = 0
        self._text = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, chosen: Sequence[Chosen]) -> dict[str, Any]:
        """The next tokens."""
        offsets = []
        for token in chosen:
            offsets.append(self._place)
            if token.id not in self._tokenizer.control_ids:  # which are no part of the text
                self._place += len(self._text.decode(token.bytes))
        return {
            "tokens": [_named(token.bytes) for token in chosen],
            "token_logprobs": [token.logprob for token in chosen],
            "top_logprobs": [{self._alternative(number): logprob for number, logprob in token.top} for token in chosen],
            "text_offset": offsets,
        }

    def _alternative(self, number: int) -> str:
        return _named(_bytes(self._tokenizer, number)) or f"token_id:{number}"


def _named(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in text)


def _entry(text: bytes, logprob: float) -> dict[str, Any]:
    return {"token": text.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(text)}


def _bytes(tokenizer: Tokenizer, number: int) -> bytes:
    """The bytes of a token; none of an id that a scripted engine made up."""
    return tokenizer.token_bytes(number) if 0 <= number < tokenizer.size else b""
