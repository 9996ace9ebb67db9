"""Reading blocks: the gguf package judges byte for byte; hand-made vectors for what it cannot read."""

import numpy as np
import pytest

import gguf
from strata.errors import FormatError
from strata.formats import TYPES, by_name, dequantise
from support.blocks import HALF_SCALED, SECOND_AT, set_scales

NOT_IN_GGUF = {"Q1_0", "Q2_0", "Q2_0_128"}
JUDGED = [kind for kind in TYPES if kind.name not in NOT_IN_GGUF]
SPECIAL = [
    *(0.0, -0.0, 1.0, -1.0, 0.0123, -0.0123),
    *(2.0**-24, -(2.0**-24), 2.0**-14 - 2.0**-24, 2.0**-14),  # smallest and largest subnormal, smallest normal
    *(65504.0, -65504.0, np.inf, -np.inf, np.nan),
]


def oracle(name, raw):
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name])


def assert_same_bits(ours, theirs):
    """Equal float32 bits; where the oracle has NaN, NaN of any payload (NumPy does not fix it)."""
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    nan = np.isnan(theirs)
    np.testing.assert_array_equal(np.isnan(ours), nan)
    np.testing.assert_array_equal(ours.view(np.uint32)[~nan], theirs.view(np.uint32)[~nan])


@pytest.mark.parametrize("kind", JUDGED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("seed", range(3))
def test_bytes_that_are_random_throughout(kind, seed):
    """Scale fields too: 1 in 32 of them is an infinity or NaN, as many are subnormal."""
    raw = np.random.default_rng(seed).integers(0, 256, (40, 7 * kind.bytes), dtype=np.uint8)
    assert_same_bits(dequantise(kind, raw), oracle(kind.name, raw))


@pytest.mark.parametrize("name", [name for name in HALF_SCALED if name not in NOT_IN_GGUF])
def test_every_pair_of_special_scales(name):
    kind = by_name(name)
    pairs = np.array([(a, b) for a in SPECIAL for b in SPECIAL]) if name in SECOND_AT else np.array([SPECIAL] * 2).T
    raw = np.random.default_rng(5).integers(0, 256, (len(pairs), kind.bytes), dtype=np.uint8)
    set_scales(name, raw, pairs[:, 0], pairs[:, 1])
    assert_same_bits(dequantise(kind, raw), oracle(name, raw))


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_16_bit_number(name):
    raw = np.arange(65536, dtype="<u2").view(np.uint8).reshape(1, -1)
    assert_same_bits(dequantise(by_name(name), raw), oracle(name, raw))


@pytest.mark.parametrize("name", ["MXFP4", "NVFP4"])
def test_every_scale_byte_with_every_code(name):
    kind = by_name(name)
    scales = 1 if name == "MXFP4" else 4
    raw = np.empty((256, kind.bytes), dtype=np.uint8)
    raw[:, :scales] = np.arange(256)[:, None]
    raw[:, scales:] = (np.arange(kind.bytes - scales) * 0x11 + 0x80) % 256
    assert len(np.unique(raw[0, scales:] & 15)) == 16
    assert_same_bits(dequantise(kind, raw), oracle(name, raw))


def test_mxfp4_by_hand():
    raw = np.zeros((3, 17), dtype=np.uint8)
    raw[:, 0] = 128, 0, 252  # units of 1 (levels are doubled), 2^-128, 2^124
    raw[:, 1] = 0x71  # weight 0: code 1; weight 16: code 7
    raw[:, 2] = 0xF8  # weight 1: code 8, minus zero; weight 17: code 15
    w = dequantise(by_name("MXFP4"), raw)
    unit = np.array([1.0, 2.0**-128, 2.0**124])
    np.testing.assert_array_equal(w[:, 0], unit)
    np.testing.assert_array_equal(w[:, 16], 12 * unit)
    np.testing.assert_array_equal(w[:, 17], -12 * unit)
    np.testing.assert_array_equal(w[:, 1], 0)
    assert np.count_nonzero(w) == 9


def test_nvfp4_by_hand():
    raw = np.zeros((1, 36), dtype=np.uint8)
    raw[0, :4] = 0x01, 0x08, 0x7E, 0x7F  # 2^-9, 2^-6, 448, and the NaN pattern, which reads as zero
    for group in range(4):
        raw[0, 4 + 8 * group] = 0xA2  # weight 0 of the group: code 2 (1.0); weight 8: code 10 (-1.0)
    w = dequantise(by_name("NVFP4"), raw).reshape(4, 16)
    np.testing.assert_array_equal(w[:, 0], [2.0**-9, 2.0**-6, 448, 0])
    np.testing.assert_array_equal(w[:, 8], [-(2.0**-9), -(2.0**-6), -448, 0])
    assert np.count_nonzero(w) == 6


def half(value):
    return np.frombuffer(np.float16(value).tobytes(), dtype=np.uint8)


def test_q1_0_by_hand():
    raw = np.zeros((1, 18), dtype=np.uint8)
    raw[0, :2] = half(0.25)
    raw[0, 2] = 0b00000101  # weights 0 and 2
    raw[0, 17] = 0b10000000  # weight 127
    expected = np.full(128, -0.25)
    expected[[0, 2, 127]] = 0.25
    np.testing.assert_array_equal(dequantise(by_name("Q1_0"), raw)[0], expected)


@pytest.mark.parametrize(("name", "weights"), [("Q2_0", 64), ("Q2_0_128", 128)])
@pytest.mark.parametrize("d", [0.5, -0.5])
def test_q2_0_by_hand(name, weights, d):
    raw = np.full((1, 2 + weights // 4), 0b01010101, dtype=np.uint8)  # code 1 everywhere: zero
    raw[0, :2] = half(d)
    raw[0, 2] = 0b11_10_01_00  # weights 0..3: codes 0, 1, 2, 3
    raw[0, -1] = 0b00_01_01_11  # the last four: 3, 1, 1, 0
    expected = np.zeros(weights)
    expected[[0, 2, 3]] = -d, d, 2 * d
    expected[[-4, -1]] = 2 * d, -d
    np.testing.assert_array_equal(dequantise(by_name(name), raw)[0], expected)


def by_formula(name, raw):
    """Spec section 6, one weight at a time in float64."""
    out = []
    for block in raw:
        d = float(block[:2].view("<f2")[0])
        for j in range((len(block) - 2) * (8 if name == "Q1_0" else 4)):
            if name == "Q1_0":
                out.append(d if (block[2 + j // 8] >> (j % 8)) & 1 else -d)
            else:
                out.append((((int(block[2 + j // 4]) >> (2 * (j % 4))) & 3) - 1) * d)
    return np.array(out)


@pytest.mark.parametrize("name", sorted(NOT_IN_GGUF))
def test_types_without_an_oracle_follow_the_formula(name):
    kind = by_name(name)
    raw = np.random.default_rng(3).integers(0, 256, (64, kind.bytes), dtype=np.uint8)
    raw[:, 1] &= 0xBF  # exponent below 16: finite
    set_scales(name, raw[:8], np.array([0.0, -0.0, 1.0, -1.0, 65504, -65504, 2.0**-24, -(2.0**-24)]))
    np.testing.assert_array_equal(dequantise(kind, raw).reshape(-1), by_formula(name, raw))


def test_bad_scales_spoil_their_own_block_only():
    kind = by_name("Q2_0")
    raw = np.zeros((3, kind.bytes), dtype=np.uint8)
    set_scales("Q2_0", raw, np.array([1.0, np.nan, 1.0]))
    w = dequantise(kind, raw)
    assert np.isnan(w[1]).all()
    assert np.isfinite(w[[0, 2]]).all()


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_a_long_array_equals_its_blocks(kind):
    """Arrays are cut into pieces inside; more than two pieces here."""
    n = (1 << 19) // kind.weights + 3
    raw = np.random.default_rng(0).integers(0, 256, (n, kind.bytes), dtype=np.uint8)
    whole = dequantise(kind, raw)
    picks = [0, 1, n // 2 - 1, n // 2, n // 2 + 1, n - 1]
    for i in picks:
        np.testing.assert_array_equal(whole[i], dequantise(kind, raw[i]))


def test_leading_dimensions_are_kept():
    raw = np.zeros((2, 1, 3, 36), dtype=np.uint8)
    assert dequantise(by_name("Q2_0"), raw).shape == (2, 1, 3, 128)
    assert dequantise(by_name("Q2_0"), raw[0, 0, 0]).shape == (128,)
    assert dequantise(by_name("Q2_0"), raw[:0]).shape == (0, 1, 3, 128)


def test_strided_and_read_only_bytes(tmp_path):
    kind = by_name("Q4_K")
    raw = np.random.default_rng(1).integers(0, 256, (6, 2 * kind.bytes), dtype=np.uint8)
    raw.tofile(tmp_path / "rows")
    mapped = np.memmap(tmp_path / "rows", dtype=np.uint8, mode="r", shape=raw.shape)
    expected = oracle("Q4_K", raw)
    assert_same_bits(dequantise(kind, mapped), expected)
    assert type(dequantise(kind, mapped)) is np.ndarray
    assert_same_bits(dequantise(kind, raw[::2]), expected[::2])
    assert_same_bits(dequantise(kind, np.asfortranarray(raw)), expected)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (np.zeros((2, 35), np.uint8), r"Q2_0.*18 bytes.*uint8 \[2, 35\]"),
        (np.zeros((2, 0), np.uint8), r"Q2_0.*18 bytes.*uint8 \[2, 0\]"),
        (np.zeros((2, 36), np.int8), r"Q2_0.*int8 \[2, 36\]"),
        (np.zeros((2, 36), np.float32), r"Q2_0.*float32 \[2, 36\]"),
        (np.zeros((), np.uint8), r"Q2_0.*uint8 \[\]"),
    ],
    ids=["torn", "empty", "int8", "float32", "scalar"],
)
def test_bytes_that_are_no_rows(raw, message):
    with pytest.raises(FormatError, match=message):
        dequantise(by_name("Q2_0"), raw)
