"""The table of types, and finding a type from what a file says."""

import pytest

import gguf
from strata.errors import FormatError
from strata.formats import TYPES, by_name, resolve

# gguf 0.19 knows neither layout of id 42; these are the spec's.
NOT_IN_GGUF = {"Q2_0": (42, 64, 18), "Q2_0_128": (42, 128, 34)}


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_id_and_sizes_are_those_of_gguf(kind):
    if kind.name in NOT_IN_GGUF:
        assert (kind.id, kind.weights, kind.bytes) == NOT_IN_GGUF[kind.name]
    else:
        oracle = gguf.GGMLQuantizationType[kind.name]
        assert kind.id == oracle.value
        assert (kind.weights, kind.bytes) == gguf.GGML_QUANT_SIZES[oracle]


def test_no_floating_type_of_gguf_is_missing():
    integers_and_intermediates = {"I8", "I16", "I32", "I64", "F64", "Q8_1", "Q8_K"}
    expected = {entry.name for entry in gguf.GGML_QUANT_SIZES} - integers_and_intermediates
    assert expected <= {kind.name for kind in TYPES}


@pytest.mark.parametrize(
    ("name", "width", "row_bytes"),
    [  # gguf-tensors spec, section 6.1
        ("IQ4_NL", 640, 360), ("Q5_1", 640, 480), ("Q8_0", 640, 680), ("Q2_0", 640, 180), ("NVFP4", 640, 360),
        ("MXFP4", 640, 340), ("Q2_0_128", 640, 170), ("IQ1_M", 2560, 560), ("IQ2_XS", 2560, 740),
        ("IQ2_S", 2560, 820), ("Q2_0", 2560, 720), ("IQ3_XXS", 2560, 980), ("IQ3_S", 2560, 1100),
        ("IQ4_XS", 2560, 1360), ("Q4_K", 2560, 1440), ("Q5_K", 2560, 1760), ("Q6_K", 2560, 2100),
        ("Q8_0", 2560, 2720), ("IQ4_NL", 160, 90), ("Q8_0", 160, 170),
    ],
)  # fmt: skip
def test_row_bytes(name, width, row_bytes):
    assert by_name(name).row_bytes(width) == row_bytes


@pytest.mark.parametrize("width", [0, -256, 255, 257, 640])
def test_row_of_broken_blocks_is_refused(width):
    with pytest.raises(FormatError, match=f"Q4_K.*256.*{width}"):
        by_name("Q4_K").row_bytes(width)


def test_bits_per_weight_count_the_scales():
    assert by_name("Q4_0").bits == 4.5
    assert by_name("Q2_0_128").bits == 2.125


def test_by_name_finds_every_type_and_names_them_when_it_does_not():
    for kind in TYPES:
        assert by_name(kind.name) is kind
    with pytest.raises(FormatError, match=r"'Q9_9'.*Q4_0.*IQ3_XXS"):
        by_name("Q9_9")


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind.id != 42], ids=lambda kind: kind.name)
def test_resolve_by_id(kind):
    assert resolve(kind.id, (3, kind.weights * 2)) is kind
    assert resolve(kind.id, (3, kind.weights * 2), 3 * kind.row_bytes(kind.weights * 2)) is kind


@pytest.mark.parametrize("padding", [0, 14, 31])
@pytest.mark.parametrize(("name", "row_bytes"), [("Q2_0", 180), ("Q2_0_128", 170)])
def test_id_42_is_told_apart_by_length(name, row_bytes, padding):
    assert resolve(42, (16, 2560, 640), 16 * 2560 * row_bytes + padding).name == name
    assert resolve(42, (4, 640), 4 * row_bytes + padding).name == name


def test_id_42_with_a_width_only_one_layout_can_have():
    assert resolve(42, (2, 64)).name == "Q2_0"
    assert resolve(42, (2, 192), 108).name == "Q2_0"


def test_id_42_needs_a_length_where_both_layouts_fit():
    with pytest.raises(FormatError, match=r"42.*\[2, 640\].*Q2_0, Q2_0_128.*length"):
        resolve(42, (2, 640))


@pytest.mark.parametrize(
    ("type_id", "shape", "nbytes", "message"),
    [
        (42, (2, 640), 339, r"42.*\[2, 640\].*360 \(Q2_0\) or 340 \(Q2_0_128\).*339"),
        (42, (2, 100), 100, r"42.*\[2, 100\].*64 \(Q2_0\) or 128 \(Q2_0_128\).*100"),
        (8, (2, 64), 135, r"8.*\[2, 64\].*136 \(Q8_0\).*135"),
        (12, (4, 640), None, r"12.*\[4, 640\].*256 \(Q4_K\).*640"),
        (0, (), None, r"0.*\[\].*no weights"),
        (0, (4, 0), None, r"0.*\[4, 0\].*no weights"),
        (8, (-1, 32), 34, r"8.*\[-1, 32\].*no weights"),
        (9999, (2, 64), None, "9999.*F32.*Q2_0_128"),
        (-1, (2, 64), None, "-1.*F32"),
        (4, (2, 64), None, "id 4 .*F32"),  # Q4_2, retired long ago
        (24, (2, 64), None, "id 24 .*F32"),  # I8: not a weight format
    ],
)
def test_resolve_says_what_does_not_fit(type_id, shape, nbytes, message):
    with pytest.raises(FormatError, match=message):
        resolve(type_id, shape, nbytes)
