"""Metadata: every value type, typed access, laziness."""

import numpy as np
import pytest

from strata.errors import GgufError
from strata.gguf import Metadata, MissingKeyError, open_model
from strata.gguf.cursor import Cursor
from support.ggufs import SAMPLE_ENTRIES, build, sample


def opened(tmp_path, *entries) -> Metadata:
    path = tmp_path / "model.gguf"
    path.write_bytes(build(entries).data)
    return open_model(path).metadata


@pytest.mark.parametrize(("key", "kind", "value"), SAMPLE_ENTRIES, ids=lambda part: str(part)[:24])
def test_every_value_type_is_read(tmp_path, key, kind, value):
    metadata = opened(tmp_path, *SAMPLE_ENTRIES)
    found = metadata[key]
    if isinstance(found, np.ndarray):
        assert found.tolist() == value
        expected = {"u": np.unsignedinteger, "i": np.signedinteger, "f": np.floating, "b": np.bool_}[kind[0]]
        assert np.issubdtype(found.dtype, expected)
        assert f"{found.dtype.itemsize * 8}" in kind or kind == "bool[]"
        assert not found.flags.writeable
    else:
        assert found == value
        assert type(found) is type(value)
    assert metadata.kind(key) == (kind.replace("[]", f"[{len(value)}]") if kind.endswith("[]") else kind)


def test_keys_keep_their_order_and_are_a_mapping(tmp_path):
    metadata = opened(tmp_path, *SAMPLE_ENTRIES)
    assert list(metadata) == [key for key, _, _ in SAMPLE_ENTRIES]
    assert len(metadata) == len(SAMPLE_ENTRIES)
    assert metadata.get("absent", 7) == 7
    assert "absent" not in metadata


@pytest.mark.parametrize("kind", ["u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64"])
def test_integers_are_accepted_in_any_integer_type(tmp_path, kind):
    metadata = opened(tmp_path, ("a", kind, 48), ("b", f"{kind}[]", [11, 10, 0]))
    assert metadata.integer("a") == 48
    assert type(metadata.integer("a")) is int
    assert metadata.real("a") == 48.0
    assert metadata.integers("b") == (11, 10, 0)
    assert all(type(item) is int for item in metadata.integers("b"))
    assert metadata.reals("b", 3) == (11.0, 10.0, 0.0)


def test_typed_access(tmp_path):
    metadata = opened(
        tmp_path,
        ("name", "string", "x"),
        ("flag", "bool", False),
        ("eps", "f32", 0.5),
        ("wide", "f64", 0.1),
        ("tokens", "string[]", ["a", "b"]),
        ("curve", "f32[]", [0.5, 1.0]),
    )
    assert metadata.string("name") == "x"
    assert metadata.boolean("flag") is False
    assert metadata.real("eps") == 0.5
    assert metadata.real("wide") == 0.1
    assert metadata.strings("tokens", 2) == ["a", "b"]
    assert metadata.reals("curve") == (0.5, 1.0)


def test_defaults_serve_only_missing_keys(tmp_path):
    metadata = opened(tmp_path, ("name", "string", "x"), ("zero", "u32", 0))
    assert metadata.integer("absent", 0) == 0
    assert metadata.integer("zero", 5) == 0
    assert metadata.real("absent", 1.5) == 1.5
    assert metadata.string("absent", "") == ""
    assert metadata.boolean("absent", default=False) is False
    with pytest.raises(GgufError, match="stored as string"):
        metadata.integer("name", 4)


@pytest.mark.parametrize(
    ("method", "key", "expected", "found"),
    [
        ("integer", "text", "an integer", "string"),
        ("integer", "flag", "an integer", "bool"),
        ("integer", "eps", "an integer", "f32"),
        ("integer", "list", "an integer", r"u32\[2\]"),
        ("real", "text", "a number", "string"),
        ("real", "flag", "a number", "bool"),
        ("string", "list", "a string", r"u32\[2\]"),
        ("string", "texts", "a string", r"string\[1\]"),
        ("boolean", "one", "a boolean", "u32"),
        ("integers", "one", "an array of integers", "u32"),
        ("integers", "texts", "an array of integers", r"string\[1\]"),
        ("integers", "reals", "an array of integers", r"f32\[1\]"),
        ("reals", "texts", "an array of numbers", r"string\[1\]"),
        ("strings", "list", "an array of strings", r"u32\[2\]"),
        ("strings", "text", "an array of strings", "string"),
    ],
)
def test_a_wrong_type_names_file_key_expected_and_found(tmp_path, method, key, expected, found):
    metadata = opened(
        tmp_path,
        ("text", "string", "12"),
        ("flag", "bool", True),
        ("eps", "f32", 1.0),
        ("one", "u32", 1),
        ("list", "u32[]", [1, 2]),
        ("texts", "string[]", ["a"]),
        ("reals", "f32[]", [1.0]),
    )
    with pytest.raises(GgufError, match=rf"model\.gguf: .*'{key}' must be {expected}.* stored as {found}$"):
        getattr(metadata, method)(key)


@pytest.mark.parametrize("method", ["integers", "reals", "strings"])
def test_a_wrong_count_is_refused(tmp_path, method):
    metadata = opened(
        tmp_path, ("a", "string[]" if method == "strings" else "u64[]", ["x"] if method == "strings" else [1])
    )
    with pytest.raises(GgufError, match=r"'a' must have 3 elements, but it has 1"):
        getattr(metadata, method)("a", 3)


def test_a_missing_key_is_both_a_strata_error_and_a_key_error(tmp_path):
    metadata = opened(tmp_path, ("a", "u32", 1))
    with pytest.raises(MissingKeyError, match=r"^[^'\"].*model\.gguf: metadata key 'b' is missing$"):
        metadata["b"]
    for method in ("integer", "real", "string", "boolean", "integers", "reals", "strings", "kind"):
        with pytest.raises(GgufError, match="'b' is missing"):
            getattr(metadata, method)("b")
    with pytest.raises(KeyError):
        metadata["b"]


def test_arrays_are_decoded_when_asked_and_only_once(tmp_path, monkeypatch):
    decoded = []
    monkeypatch.setattr(Cursor, "texts", lambda _self, count, what: decoded.append(what) or ["x"] * count)
    metadata = opened(tmp_path, *SAMPLE_ENTRIES)
    assert metadata.kind("many.string") == "string[4]"
    assert decoded == []
    assert metadata["many.string"] is metadata["many.string"]
    assert decoded == ["the value of metadata key 'many.string'"]


def test_an_array_does_not_keep_the_file_mapped(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(sample().data)
    array = open_model(path).metadata["many.u64"]
    assert array.flags.aligned
    assert array.base is None or array.base.nbytes == array.nbytes
