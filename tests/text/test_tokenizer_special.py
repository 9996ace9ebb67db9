"""Control, user-defined and unused tokens (F03, F04); token bytes; a vocabulary of the real size."""

import random
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from strata.errors import TextError
from strata.text import Control, Prompt, Tokenizer
from support.vocab import SPECIALS, USER_DEFINED, vocabulary_metadata

METADATA = vocabulary_metadata()
TOKENS = METADATA["tokenizer.ggml.tokens"]
OURS = Tokenizer.from_metadata(METADATA)
CONTROL = tuple(text for text in SPECIALS if text not in USER_DEFINED)
CONTROL_IDS = {TOKENS.index(text) for text in CONTROL}

pieces = st.lists(st.sampled_from([*SPECIALS, "<|im_", "end|>", "a", " ", "\n", "é", "<", "|>"]), max_size=10).map(
    "".join
)

# A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("text", USER_DEFINED)
def test_user_defined_tokens_are_one_id_in_any_text_and_are_shown(text: str) -> None:
    for special in (False, True):
        ids = OURS.encode(f"a{text}b", special=special)
        assert ids.count(TOKENS.index(text)) == 1
        assert OURS.decode(ids) == f"a{text}b"
    assert OURS.id_of(text) == TOKENS.index(text)


@pytest.mark.parametrize("text", CONTROL)
def test_control_tokens_are_matched_only_on_request(text: str) -> None:
    typed = OURS.encode(f"a{text}b")
    assert not CONTROL_IDS & set(typed)
    assert OURS.decode(typed) == f"a{text}b"
    trusted = OURS.encode(f"a{text}b", special=True)
    assert trusted == [*OURS.encode("a"), TOKENS.index(text), *OURS.encode("b")]
    assert OURS.decode(trusted) == "ab"
    assert OURS.decode(trusted, special=True) == f"a{text}b"
    assert OURS.id_of(text) == TOKENS.index(text)


@settings(PATIENT)
@given(pieces)
def test_no_text_becomes_a_control_token(text: str) -> None:
    ids = OURS.encode(text)
    assert not CONTROL_IDS & set(ids)
    assert OURS.decode(ids) == text
    assert OURS.decode(OURS.encode(text, special=True), special=True) == text


def test_merges_that_spell_a_control_token_are_refused() -> None:
    merges = [*METADATA["tokenizer.ggml.merges"], "< |", "<| im_end|>"]
    tokens = [*TOKENS, "<|", "im_end|>"]
    kinds = np.append(METADATA["tokenizer.ggml.token_type"], [1, 1])
    changed = {"tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.merges": merges}
    with pytest.raises(TextError, match=r"tokenizer\.ggml\.merges\[\d+\].*im_end"):
        Tokenizer.from_metadata(METADATA | changed)


def test_a_prompt_is_encoded_by_its_pieces() -> None:
    prompt = Prompt((Control("<|im_start|>"), "user\n<|im_end|>", Control("<|im_end|>"), "\n"))
    ids = OURS.encode_prompt(prompt)
    start, end = OURS.id_of("<|im_start|>"), OURS.id_of("<|im_end|>")
    assert ids == [start, *OURS.encode("user\n<|im_end|>"), end, *OURS.encode("\n")]
    assert ids.count(end) == 1
    with pytest.raises(TextError, match="nowhere"):
        OURS.encode_prompt(Prompt((Control("<|nowhere|>"),)))


def test_unused_entries_are_never_produced_and_have_no_text() -> None:
    unused = TOKENS.index("[PAD726]")
    assert OURS.unused_ids == set(range(unused, len(TOKENS)))
    assert unused not in OURS.encode("[PAD726]")
    assert unused not in OURS.encode("[PAD726]", special=True)
    assert OURS.token_bytes(unused) == b""
    assert OURS.id_of("[PAD726]") is None
    assert OURS.size == len(TOKENS)


def test_every_byte_value_has_a_token_and_comes_back() -> None:
    single = {OURS.token_bytes(number) for number in range(256)}
    assert single == {bytes([value]) for value in range(256)}


@pytest.mark.parametrize("token", [-1, len(TOKENS), 10**9])
def test_an_id_outside_the_vocabulary_is_an_error(token: int) -> None:
    with pytest.raises(TextError, match=str(token)):
        OURS.token_bytes(token)
    with pytest.raises(TextError, match=str(token)):
        OURS.decode([token])


@pytest.mark.parametrize("token", [1.5, "1", None])
def test_an_id_that_is_no_integer_is_an_error(token: object) -> None:
    with pytest.raises(TextError, match="A token id is an integer, not "):
        OURS.decode([token])  # type: ignore[list-item]


def test_a_lone_surrogate_is_an_error() -> None:
    for special in (False, True):
        with pytest.raises(TextError, match=r"U\+D800.*character 2"):
            OURS.encode("ab\ud800", special=special)
        with pytest.raises(TextError, match=r"^The text is a NoneType; expected a str[.]$"):
            OURS.encode(None, special=special)


def test_stop_ids() -> None:
    end, text_end = TOKENS.index("<|im_end|>"), TOKENS.index("<|endoftext|>")
    assert set(OURS.eos_ids) == {end, text_end}
    without = {key: value for key, value in METADATA.items() if key != "tokenizer.ggml.eos_token_id"}
    assert set(Tokenizer.from_metadata(without).eos_ids) == {end, text_end}
    other = Tokenizer.from_metadata(METADATA | {"tokenizer.ggml.eos_token_id": np.uint32(5)})
    assert other.eos_ids == (5, end, text_end)


def test_long_text_costs_time_in_proportion() -> None:
    # Eight times the text: a linear encoder takes 8 to 13 times as long (caches), a quadratic one 64 times.
    def seconds(words: int) -> float:
        text = ("".join(random.Random(1).choices("abcdef \n", k=50)) + "é🙂 2023 ") * words
        best = []
        for _ in range(3):
            start = time.process_time()
            OURS.encode(text)
            best.append(time.process_time() - start)
        return min(best)

    assert seconds(4000) < 32 * seconds(500)


@pytest.mark.parametrize("unit", ["a", " ", "\n", "!", "क्", "🙂", " \n", "<", "<|im_end|>"])
def test_long_runs_of_one_thing_are_encoded_whole(unit: str) -> None:
    text = unit * 30_000
    assert OURS.decode(OURS.encode(text + "x")) == text + "x"


def test_a_vocabulary_of_the_real_size_is_built_quickly_with_the_real_ids() -> None:
    tokens, merges = full_size()
    kinds = np.array([1] * 248_044 + [4 if text in USER_DEFINED else 3 for text in SPECIALS] + [3] * 7 + [5] * 243)
    filler = [
        f"<|filler_{number}|>" for number in range(7)
    ]  # the file has 33 added tokens, of which 26 have known names
    padding = [f"[PAD{number}]" for number in range(248_077, 248_320)]
    metadata = METADATA | {
        "tokenizer.ggml.tokens": [*tokens, *SPECIALS, *filler, *padding],
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.eos_token_id": 248_046,
    }
    start = time.process_time()
    made = Tokenizer.from_metadata(metadata)
    taken = time.process_time() - start
    assert made.size == 248_320
    assert len(made.unused_ids) == 243
    assert set(made.eos_ids) == {248_046, 248_044}
    named = {
        "<|endoftext|>": 248_044,
        "<|im_start|>": 248_045,
        "<|image_pad|>": 248_056,
        "<tool_call>": 248_058,
        "<think>": 248_068,
    }
    assert {text: made.id_of(text) for text in named} == named
    assert taken < 5  # about 1.1 s here; the bound only keeps a slow algorithm out


def full_size() -> tuple[list[str], list[str]]:
    """248,044 base entries (all pairs of bytes, then triples) and 247,587 merges."""
    single = TOKENS[:256]
    pairs = [left + right for left in single for right in single]
    triples = [pair + last for pair in pairs[:713] for last in single]
    tokens = list(dict.fromkeys([*single, *pairs, *triples]))[:248_044]
    return tokens, [f"{token[:-1]} {token[-1]}" for token in tokens[256:247_843]]


def test_a_long_text_has_the_ids_of_its_short_ways() -> None:
    """Long texts go another way through the library."""
    text = "word 12 é 🙂 <think> \n\n  x" * 2000
    assert len(text) > 1 << 14
    assert OURS.encode(text) == OURS._core.encode(text, add_special_tokens=False).ids
    assert OURS.decode(OURS.encode(text)) == text
