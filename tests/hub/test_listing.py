"""Which files are one model, what it is called, and which is meant."""

import pytest

from strata.hub.errors import HubError
from strata.hub.listing import Listing, RemoteFile, choose, choose_draft, quant_of
from strata.hub.name import Name, parse, parsed


def listing(*files: str | tuple[str, int]) -> Listing:
    pairs = [(file, 100) if isinstance(file, str) else file for file in files]
    return Listing("m/R", "0" * 40, tuple(RemoteFile(path, size, "0" * 64) for path, size in pairs))


@pytest.mark.parametrize(
    ("stem", "quant"),
    [
        ("Qwen3.8-Flash-Next-IQ3_XXS", "IQ3_XXS"),
        ("UD-Q4_K_XL/Qwen3.8-Flash-Next-UD-Q4_K_XL", "UD-Q4_K_XL"),
        ("Q8_0/model", "Q8_0"),
        ("model.Q2_0", "Q2_0"),
        ("flash-q4_k_m", "Q4_K_M"),
        ("flash-BF16", "BF16"),
        ("flash-NVFP4", "NVFP4"),
        ("Swift-1.5-IQ2_XS", "IQ2_XS"),
        ("Coder-IQ1_M", "IQ1_M"),
        ("some/model", "model"),
    ],
)
def test_names_of_quantisations(stem, quant) -> None:
    assert quant_of(stem) == quant


def test_sets_are_put_in_order_whatever_order_they_are_listed_in() -> None:
    found = listing("a-Q2_0-00003-of-00003.gguf", "a-Q2_0-00001-of-00003.gguf", "a-Q2_0-00002-of-00003.gguf", "b.txt")
    (one,) = found.models
    assert [file.path for file in one.files] == [f"a-Q2_0-0000{part}-of-00003.gguf" for part in (1, 2, 3)]
    assert one.complete


def test_a_set_that_lacks_a_part_is_not_downloaded() -> None:
    with pytest.raises(HubError, match="has only 2 of the 3 files of Q2_0; it may still be uploaded"):
        choose(listing("a-Q2_0-00003-of-00003.gguf", "a-Q2_0-00001-of-00003.gguf"), "Q2_0")


def test_two_of_one_quant_are_told_apart_by_their_names() -> None:
    found = listing("x/Flash-Q2_0.gguf", "y/Swift-Q2_0.gguf")
    with pytest.raises(HubError, match=r"several models called Q2_0; name one: m/R:Flash-Q2_0 .*m/R:Swift-Q2_0"):
        choose(found, "Q2_0")
    assert choose(found, "swift-q2_0").files[0].path == "y/Swift-Q2_0.gguf"
    assert choose(found, "Flash-Q2_0.gguf").files[0].path == "x/Flash-Q2_0.gguf"


def test_a_near_miss_is_named() -> None:
    with pytest.raises(HubError, match=r"has no IQ3_XS; did you mean IQ3_XXS\? It has m/R:IQ3_XXS \(100 B\)"):
        choose(listing("a-IQ3_XXS.gguf"), "IQ3_XS")


def test_without_a_model() -> None:
    with pytest.raises(HubError, match=r"has no GGUF file of a model; it has files of type .json, .safetensors"):
        choose(listing("a.safetensors", "b.json", "mmproj.gguf"), None)


def test_draft_heads() -> None:
    found = listing(("a-Q4_K_M.gguf", 900), ("a-Q2_0.gguf", 500), ("a-mtp-Q4_K_M.gguf", 30), ("draft/a-Q2_0.gguf", 20))
    assert [one.quant for one in found.models] == ["Q2_0", "Q4_K_M"]
    heads = [choose_draft(found, quant) for quant in ("Q4_K_M", "Q2_0", "Q8_0")]
    assert [head and head.files[0].path for head in heads] == ["a-mtp-Q4_K_M.gguf", "draft/a-Q2_0.gguf", None]


def test_a_whole_model_may_say_that_it_has_a_head() -> None:
    found = listing(("a-Q4_K_M.gguf", 900), ("a-MTP-Q4_K_M.gguf", 930))
    assert len(found.models) == 2
    assert found.drafts == ()
    assert len(listing(("a-MTP-Q4_K_M.gguf", 930)).models) == 1


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("a/b", Name("a", "b")),
        ("Maker/Flash-3.8_GGUF:UD-Q4_K_XL", Name("Maker", "Flash-3.8_GGUF", "UD-Q4_K_XL")),
        ("a", None),
        ("a/b/c", None),
        ("a/b.gguf", None),
        ("../b", None),
        ("a/..", None),
        ("/a/b", None),
        ("a/b:", None),
        ("a/b:c/d", None),
        ("", None),
    ],
)
def test_names(text, name) -> None:
    assert parse(text) == name
    assert name is None or str(name) == text


def test_an_address_is_a_name_too() -> None:
    assert parsed("https://huggingface.co/a/b") == Name("a", "b")
    with pytest.raises(HubError, match="'nothing' is no name of a model on a hub; it looks like OWNER/NAME:QUANT"):
        parsed("nothing")
