"""Vocabularies that do not fit together are refused, with the key named."""

import numpy as np
import pytest

from strata.errors import TextError
from strata.text import ChatTemplate, Tokenizer
from support.vocab import vocabulary_metadata

METADATA = vocabulary_metadata(padding=2)
TOKENS = METADATA["tokenizer.ggml.tokens"]
KINDS = METADATA["tokenizer.ggml.token_type"]
MERGES = METADATA["tokenizer.ggml.merges"]


@pytest.mark.parametrize("key", ["model", "pre", "tokens", "token_type", "merges"])
def test_a_missing_key_is_named(key: str) -> None:
    without = {name: value for name, value in METADATA.items() if name != f"tokenizer.ggml.{key}"}
    with pytest.raises(TextError, match=rf"tokenizer\.ggml\.{key}"):
        Tokenizer.from_metadata(without)


def changed(place: int, value: object, values: object = TOKENS) -> list[object]:
    copy = list(values)
    copy[place] = value
    return copy


WRONG = {
    "another model": ("model", "llama", "byte-level BPE"),
    "an unknown pre-tokenizer": ("pre", "qwen99", "qwen2, qwen35"),
    "no name of a pre-tokenizer": ("pre", 7, "known pre-tokenizers"),
    "tokens not an array": ("tokens", "abc", "expected an array"),
    "no tokens": ("tokens", [], "empty"),
    "a token that is a number": ("tokens", changed(5, 5), r"tokens\[5\]"),
    "an empty token": ("tokens", changed(300, ""), r"tokens\[300\] is an empty string"),
    "a token twice": ("tokens", changed(300, TOKENS[400]), "twice, at 300 and 400"),
    "a control token twice": ("tokens", changed(300, "<|im_end|>"), "twice, at 300 and 702"),
    "a token outside the byte alphabet": ("tokens", changed(699, "a b"), r"tokens\[699\].*U\+0020"),
    "a byte without a token": ("tokens", changed(0, "xyzzy"), "0x21"),
    "too few types": ("token_type", KINDS[:-1], f"{len(TOKENS) - 1} entries.*{len(TOKENS)}"),
    "types that are no integers": ("token_type", [1.5] * len(TOKENS), "array of integers"),
    "types that are no array": ("token_type", 3, "array of integers"),
    "a type of another kind of vocabulary": ("token_type", changed(3, 6, KINDS), r"token_type\[3\] is 6"),
    "merges not an array": ("merges", 5, "expected an array"),
    "a merge of one part": ("merges", [*MERGES, "ab"], rf"merges\[{len(MERGES)}\].*two entries"),
    "a merge of three parts": ("merges", [*MERGES, "a b c"], "two entries"),
    "a merge with an unknown half": ("merges", ["qqq a"], r"merges\[0\].*'qqq'"),
    "a merge with an unknown result": ("merges", ["q Q"], r"merges\[0\].*'qQ'"),
    "a stop id outside": ("eos_token_id", 10**6, "eos_token_id is 1000000"),
    "a stop id that is padding": ("eos_token_id", len(TOKENS) - 1, "used entry"),
    "a stop id that is text": ("eos_token_id", "x", "expected a token id"),
    "a file that begins with a token": ("add_bos_token", True, "add_bos_token is True, not false"),
    "an array of beginnings": ("add_bos_token", np.array([0, 1]), "add_bos_token is array"),
    "an array of models": ("model", np.array([], np.int32), "model is array"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_named(name: str) -> None:
    key, value, text = WRONG[name]
    with pytest.raises(TextError, match=text) as raised:
        Tokenizer.from_metadata(METADATA | {f"tokenizer.ggml.{key}": value})
    assert f"tokenizer.ggml.{key}" in str(raised.value) or key == "tokens"


def test_a_vocabulary_without_an_end_of_turn_is_refused() -> None:
    plain = {f"tokenizer.ggml.{key}": METADATA[f"tokenizer.ggml.{key}"] for key in ("model", "pre", "merges")}
    tokens = {"tokenizer.ggml.tokens": TOKENS[:700], "tokenizer.ggml.token_type": np.ones(700, dtype=np.int32)}
    with pytest.raises(TextError, match="eos_token_id"):
        Tokenizer.from_metadata(plain | tokens)


@pytest.mark.parametrize(("key", "value"), [("ggml.tokens", 7), ("ggml.tokens", "abc"), ("chat_template", 7)])
def test_a_template_needs_a_text_and_a_list_of_tokens(key: str, value: object) -> None:
    metadata = METADATA | {"tokenizer.chat_template": "x"} | {f"tokenizer.{key}": value}
    with pytest.raises(TextError, match=rf"tokenizer\.{key} is a {type(value).__name__}; expected"):
        ChatTemplate.from_metadata(metadata)
