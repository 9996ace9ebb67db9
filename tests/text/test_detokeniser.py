"""The streaming detokeniser: never half a character, equal to one decoding of the whole, equal work for each token."""

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strata.text import Detokeniser, Tokenizer
from support.vocab import vocabulary_metadata

OURS = Tokenizer.from_metadata(vocabulary_metadata())
BYTE_ID = {OURS.token_bytes(number)[0]: number for number in range(256)}


def by_bytes(data: bytes) -> tuple[list[str], str]:
    """Chunks and the last piece when each byte is a token of its own."""
    stream = OURS.detokeniser()
    return [stream.push(BYTE_ID[byte]) for byte in data], stream.finish()


@pytest.mark.parametrize("text", ["a😀b", "a漢b", "👩‍👩‍👧‍👦", "é", "नमस्ते", "\0"])
def test_characters_cut_into_bytes_arrive_whole(text: str) -> None:
    chunks, last = by_bytes(text.encode())
    assert "".join(chunks) == text
    assert last == ""
    assert "\ufffd" not in "".join(chunks)
    # A character appears with its last byte, not before and not after.
    ends = [len(text[: place + 1].encode()) - 1 for place in range(len(text))]
    assert [place for place, chunk in enumerate(chunks) if chunk] == ends


@given(st.binary(max_size=40))
def test_any_bytes_equal_one_decoding_of_the_whole(data: bytes) -> None:
    chunks, last = by_bytes(data)
    assert "".join(chunks) + last == data.decode("utf-8", errors="replace")


@given(st.lists(st.integers(0, OURS.size - 1), max_size=40), st.booleans())
def test_any_tokens_equal_decode(ids: list[int], special: bool) -> None:
    stream = OURS.detokeniser(special=special)
    assert "".join(map(stream.push, ids)) + stream.finish() == OURS.decode(ids, special=special)


def test_control_tokens_are_left_out_even_inside_a_character() -> None:
    stream = OURS.detokeniser()
    ids = [BYTE_ID[0xC3], OURS.id_of("<|im_end|>"), BYTE_ID[0xA9]]
    assert "".join(map(stream.push, ids)) + stream.finish() == "é"


def test_finish_shows_what_is_left_once_and_starts_anew() -> None:
    stream = OURS.detokeniser()
    assert stream.push(BYTE_ID[0xF0]) == ""
    assert stream.finish() == "\ufffd"
    assert stream.finish() == ""
    assert stream.push(BYTE_ID[ord("x")]) == "x"


def test_work_per_token_does_not_grow_with_the_text() -> None:
    # F09 by counting instead of timing: bytes handed to the decoder, bytes kept waiting, and calls made.
    text = "plain words, 😀 emoji and ki\u0304 marks नमस्ते " * 1500
    ids = OURS.encode(text)[:20_000]
    handed: list[int] = []
    calls = 0

    def bytes_of(token: int) -> bytes:
        data = OURS.token_bytes(token)
        handed.append(len(data))
        return data

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in {"call", "c_call"}

    stream = Detokeniser(bytes_of)
    work, shown = [], []
    for token in ids:
        calls = 0
        sys.setprofile(count)
        shown.append(stream.push(token))
        sys.setprofile(None)
        work.append(calls)
        assert len(stream._decoder.getstate()[0]) <= 3
    assert sum(handed) == sum(len(OURS.token_bytes(token)) for token in ids)  # each byte once
    assert sum(work[-1000:]) < 1.5 * sum(work[:1000])
    assert "".join(shown) + stream.finish() == OURS.decode(ids)
