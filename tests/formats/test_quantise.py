"""Written weights: within the step, never behind a naive quantiser, exact where the format is exact."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import FormatError
from strata.formats import TYPES, by_name, dequantise, quantise
from support.baselines import BASELINES, IQ4_LEVELS, half
from support.blocks import random_blocks

untimed = settings(deadline=None)  # a busy machine is not a failure

WRITABLE = [kind for kind in TYPES if kind.quantise is not None]
EPS = 2.0**-24  # half a unit of a float32 in [1, 2)

SHAPES = {
    "gaussian": lambda rng, size: rng.standard_normal(size),
    "laplace": lambda rng, size: rng.laplace(size=size),
    "uniform": lambda rng, size: rng.uniform(-1, 1, size),
    "positive": lambda rng, size: rng.uniform(0.5, 1, size),
    "negative": lambda rng, size: rng.uniform(-1, -0.9, size),
    "ternary": lambda rng, size: rng.integers(-1, 2, size).astype(float),
    "sparse": lambda rng, size: rng.standard_normal(size) * (rng.random(size) < 0.03),
    "constant": lambda rng, size: np.full(size, rng.uniform(-1, 1)),
    "outlier": lambda rng, size: np.where(np.arange(size[1]) == 7, 40.0, 0.1) * rng.standard_normal(size),
    "ramp": lambda rng, size: np.exp(np.linspace(-9, 0, size[1])) * rng.standard_normal(size),
    "zeros": lambda _rng, size: np.zeros(size),
}
rows = st.tuples(st.sampled_from(sorted(SHAPES)), st.integers(0, 2**32 - 1), st.floats(-7, 3))


def draw_rows(case, weights, n=6):
    shape, seed, exponent = case
    x = SHAPES[shape](np.random.default_rng(seed), (n, weights)) * 10.0**exponent
    return np.clip(x, -60000, 60000).astype(np.float32)  # room for a scale that rounds up


def written(name, x):
    return dequantise(by_name(name), quantise(by_name(name), x)).astype(np.float64)


def squared_error(x, back):
    return ((x.astype(np.float64) - back) ** 2).sum(axis=1)


def half_spacing(d):
    """Largest error of rounding d to float16: half a unit of 11 bits, or of the subnormals."""
    return np.maximum(np.abs(d) * 2.0**-11, 2.0**-25)


# Types whose quantiser rounds against a scale taken from the block's extremes: (codes below zero, highest code).
STEPPED = {"Q4_0": (8, 7), "Q5_0": (16, 15), "Q8_0": (127, 127), "TQ1_0": (1, 1), "TQ2_0": (1, 1)}
RANGED = {"Q4_1": 15, "Q5_1": 31}


@pytest.mark.parametrize("name", STEPPED)
@untimed
@given(case=rows)
def test_error_is_within_the_step(name, case):
    """Half a step; a whole one where a weight lies beyond the highest code. Plus what rounding the scale moves it."""
    lowest, highest = STEPPED[name]
    x = draw_rows(case, by_name(name).weights).astype(np.float64)
    largest = np.abs(x).max(axis=1, keepdims=True)
    d = largest / lowest
    limit = np.where(np.abs(x) > (highest + 0.5) * d, d, d / 2) + lowest * half_spacing(d) + 4 * EPS * largest
    assert (np.abs(written(name, x.astype(np.float32)) - x) <= limit).all()


@pytest.mark.parametrize("name", RANGED)
@untimed
@given(case=rows)
def test_error_is_within_the_step_of_the_range(name, case):
    x = draw_rows(case, by_name(name).weights).astype(np.float64)
    low = x.min(axis=1, keepdims=True)
    d = (x.max(axis=1, keepdims=True) - low) / RANGED[name]
    limit = d / 2 + RANGED[name] * half_spacing(d) + half_spacing(low) + 8 * EPS * np.abs(x).max(axis=1, keepdims=True)
    assert (np.abs(written(name, x.astype(np.float32)) - x) <= limit).all()


@pytest.mark.parametrize("name", ["F16", "BF16"])
@untimed
@given(case=rows)
def test_short_floats_round_to_nearest(name, case):
    x = draw_rows(case, 64).astype(np.float64)
    limit = half_spacing(x) if name == "F16" else np.abs(x) * 2.0**-8
    assert (np.abs(written(name, x.astype(np.float32)) - x) <= limit).all()


@untimed
@given(case=rows)
def test_mxfp4_error_is_within_the_step(case):
    """With max|x| in [4, 8) units the widest gap is 2 units (half: 1), and a cut peak loses under 2: so 2 at most.

    A neighbouring exponent is taken only if the squared error of the block falls, so this bounds the mean.
    """
    x = draw_rows(case, 32).astype(np.float64)
    unit = 2.0 ** (np.floor(np.log2(np.maximum(np.abs(x).max(axis=1), 1e-30))) - 2)
    assert (squared_error(x, written("MXFP4", x.astype(np.float32))) <= 32 * (2 * unit) ** 2).all()


@untimed
@given(case=rows)
def test_q1_0_is_the_best_sign_code(case):
    x = draw_rows(case, 128).astype(np.float64)
    d = np.abs(x).mean(axis=1, keepdims=True)
    best = ((np.abs(x) - d) ** 2).sum(axis=1)
    slack = 128 * (half_spacing(d[:, 0]) + 8 * EPS * d[:, 0]) ** 2
    assert (squared_error(x, written("Q1_0", x.astype(np.float32))) <= best * (1 + 1e-12) + slack).all()


@pytest.mark.parametrize("name", BASELINES)
@untimed
@given(case=rows)
def test_no_block_is_worse_than_the_naive_quantiser(name, case):
    """Up to rounding, which is derived.

    Scales are compared by float32 sums of up to 256 products, which can rank two of them wrongly by some 16 roundings
    of the block's energy. Where the scale is rounded to float16 after the search (Q2_0, IQ4_NL), that may move every
    weight by the highest level times half a spacing.
    """
    naive, top = BASELINES[name]
    weights = by_name(name).weights
    x = draw_rows(case, weights)
    theirs = naive(x.astype(np.float64))
    error = squared_error(x, theirs)
    energy = (x.astype(np.float64) ** 2).sum(axis=1)
    back = written(name, x)
    moved = top * half_spacing(np.abs(back).max(axis=1) / max(top, 1))
    limit = error + 16 * EPS * energy + weights * moved**2
    assert (squared_error(x, back) <= limit).all()


@pytest.mark.parametrize("shape", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", BASELINES)
def test_searching_pays(name, shape):
    """On weight-like rows the search must gain at least 3% of the naive error, not just tie with it."""
    x = draw_rows((shape, 5, -1.7), by_name(name).weights, n=200)
    naive = BASELINES[name][0](x.astype(np.float64))
    assert squared_error(x, written(name, x)).sum() < 0.94 * squared_error(x, naive).sum()


@pytest.mark.parametrize(("name", "top"), [("Q4_K", 15), ("Q5_K", 31)])
def test_groups_without_a_minimum(name, top):
    """Where all weights are positive no minimum can help; the scale alone must beat rounding from zero to the peak.

    That baseline keeps an exact scale per group of 32, and still a tenth is asked for.
    """
    groups = draw_rows(("positive", 8, 0.0), 32, n=1600).astype(np.float64)
    step = groups.max(axis=1, keepdims=True) / top
    naive = ((np.rint(groups / step) * step - groups) ** 2).sum()
    x = groups.reshape(200, 256).astype(np.float32)
    assert squared_error(x, written(name, x)).sum() < 0.9 * naive


LEVELS = {"Q2_0": np.array([-1.0, 0, 1, 2]), "Q2_0_128": np.array([-1.0, 0, 1, 2]), "IQ4_NL": IQ4_LEVELS}


@pytest.mark.parametrize("name", LEVELS)
@pytest.mark.parametrize("scale", [0.02, 2e-6])
def test_codes_are_the_nearest_for_the_scale_that_is_stored(name, scale):
    """Not for the scale before it was rounded to float16; at 2e-6 that rounding is coarse."""
    kind = by_name(name)
    x = (draw_rows(("gaussian", 2, 0.0), kind.weights, n=300) * scale).astype(np.float32)
    blocks = quantise(kind, x)
    d = blocks[:, :2].view("<f2").astype(np.float64)
    best = np.abs(x[..., None] - d[..., None] * LEVELS[name]).min(axis=-1)
    # The quotient that decides is rounded three times, which moves a border by as many units of the weight.
    error = np.abs(x - dequantise(kind, blocks).astype(np.float64))
    assert (error <= best + 6 * EPS * np.abs(x)).all()


def test_q2_0_bytes_of_a_block_that_fits():
    x = np.tile(np.array([-0.5, 0, 0.5, 1.0], dtype=np.float32), 16)
    expected = np.concatenate([np.array([0.5], dtype="<f2").view(np.uint8), np.full(16, 0b11100100, np.uint8)])
    np.testing.assert_array_equal(quantise(by_name("Q2_0"), x), expected)


def test_q1_0_bytes():
    x = np.full(128, -0.25, dtype=np.float32)
    x[[1, 127]] = 0.25, 0.0  # zero counts as positive
    d = np.array([127 * 0.25 / 128], dtype="<f2").view(np.uint8)
    expected = np.concatenate([d, [0b10], np.zeros(14), [0b10000000]]).astype(np.uint8)
    np.testing.assert_array_equal(quantise(by_name("Q1_0"), x), expected)


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_mirrored_weights_have_much_the_same_error(kind, sign):
    """Catches a sign lost on one side; Q4_0 and the like are not symmetric, so block by block errors do differ."""
    x = draw_rows(("gaussian", 9, -1.5), 256, n=100)
    error = squared_error(x, written(kind.name, x)).sum()
    mirrored = squared_error(-x, written(kind.name, -x)).sum()
    assert mirrored <= 1.1 * error + 1e-30
    positive = np.abs(x) * np.float32(sign)
    assert (written(kind.name, positive) * sign).mean() > 0.5 * np.abs(x).mean()


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
def test_zeros_stay_zero(kind):
    assert not written(kind.name, np.zeros((2, 256), dtype=np.float32)).any()


@pytest.mark.parametrize("name", ["F16", "BF16"])
def test_every_finite_short_float_survives(name):
    raw = np.arange(65536, dtype="<u2").view(np.uint8).reshape(-1, 2)
    w = dequantise(by_name(name), raw)
    finite = np.isfinite(w[:, 0])
    np.testing.assert_array_equal(quantise(by_name(name), w[finite]), raw[finite])


@untimed
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=9))
def test_f32_survives(values):
    x = np.array(values, dtype=np.float32)
    np.testing.assert_array_equal(dequantise(by_name("F32"), quantise(by_name("F32"), x)).view("<u4"), x.view("<u4"))


@pytest.mark.parametrize("name", ["Q4_0", "Q5_0", "Q8_0", "TQ1_0", "TQ2_0", "Q1_0"])
@untimed
@given(case=rows)
def test_writing_twice_gives_the_same_bytes(name, case):
    """The stored scale puts the peak on its own code again, exactly; a scale that underflows to zero says nothing."""
    once = quantise(by_name(name), draw_rows(case, by_name(name).weights))
    back = dequantise(by_name(name), once)
    kept = (back != 0).any(axis=1)
    np.testing.assert_array_equal(quantise(by_name(name), back)[kept], once[kept])


@untimed
@given(case=rows)
def test_writing_mxfp4_twice_gives_the_same_weights(case):
    """Not always the same bytes: a block without a large code has two exact encodings."""
    once = written("MXFP4", draw_rows(case, 32))
    np.testing.assert_array_equal(written("MXFP4", once.astype(np.float32)), once)


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
def test_rewriting_representable_weights_loses_little(kind):
    """Blocks the type can hold exactly come back with less error than Gaussian rows of the same size.

    TQ1_0 and TQ2_0 skip code 3, so their blocks are made by writing first.
    """
    x = dequantise(kind, random_blocks(kind, (60, 256), np.random.default_rng(4)))
    if kind.name in {"TQ1_0", "TQ2_0"}:
        x = dequantise(kind, quantise(kind, x))
    gaussian = draw_rows(("gaussian", 3, -1.2), 256, n=60)
    lost = squared_error(x, written(kind.name, x)).sum() / (x.astype(np.float64) ** 2).sum()
    fresh = squared_error(gaussian, written(kind.name, gaussian)).sum() / (gaussian.astype(np.float64) ** 2).sum()
    assert lost <= 0.9 * fresh


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
def test_shapes_strides_and_pieces(kind):
    x = draw_rows(("gaussian", 1, 0.0), 256, n=1100)  # 281,600 weights: more than one piece
    whole = quantise(kind, x)
    assert whole.shape == (1100, kind.row_bytes(256))
    assert whole.dtype == np.uint8
    assert quantise(kind, x[:6].reshape(2, 3, 256)).shape == (2, 3, kind.row_bytes(256))
    assert quantise(kind, x[:0]).shape == (0, kind.row_bytes(256))
    np.testing.assert_array_equal(quantise(kind, np.asfortranarray(x[:8])), quantise(kind, x[:8]))
    if not kind.name.startswith(("IQ2", "IQ3")):  # matrix products of other heights may break ties otherwise
        np.testing.assert_array_equal(quantise(kind, x[1023:1026]), whole[1023:1026])


@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
@pytest.mark.parametrize("largest", [65504.0, 2.0**-24, 2.0**-126, 2.0**-149])
def test_ends_of_the_range(kind, largest):
    x = (draw_rows(("uniform", 6, 0.0), 256) * largest).astype(np.float32)
    x[:, 17] = largest
    back = written(kind.name, x)
    assert np.isfinite(back).all()
    if kind.name in {"Q4_1", "Q5_1"}:
        return  # the reference rounds scale and minimum apart from each other; their limit is tested above
    assert (squared_error(x, back) <= (x.astype(np.float64) ** 2).sum(axis=1) * (1 + 1e-6)).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", WRITABLE, ids=lambda kind: kind.name)
def test_weights_that_are_not_finite(kind, bad):
    x = np.zeros((2, 256), dtype=np.float32)
    x[1, 200] = bad
    with pytest.raises(FormatError, match=f"{kind.name} must be finite; found {bad}"):
        quantise(kind, x)


@pytest.mark.parametrize("kind", [kind for kind in WRITABLE if np.isfinite(kind.largest)], ids=lambda kind: kind.name)
def test_weights_beyond_the_scale(kind):
    x = np.zeros((2, 256), dtype=np.float32)
    x[0, 3] = -np.nextafter(np.float32(kind.largest), np.float32(np.inf))
    with pytest.raises(FormatError, match=f"{kind.name} holds magnitudes up to"):
        quantise(kind, x)


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind.quantise is None], ids=lambda kind: kind.name)
def test_types_that_are_only_read(kind):
    with pytest.raises(FormatError, match=f"{kind.name} can be read but not written"):
        quantise(kind, np.zeros((1, 256), dtype=np.float32))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 100), np.float32), "Q4_K row.*256.*100"),
        (np.zeros((2, 0), np.float32), "Q4_K row.*256.*0"),
        (np.zeros((2, 256), np.float64), r"Q4_K.*float64 \[2, 256\]"),
        (np.zeros((2, 256), np.int32), r"Q4_K.*int32 \[2, 256\]"),
        (np.zeros((), np.float32), r"Q4_K.*float32 \[\]"),
    ],
    ids=["width", "empty", "float64", "int32", "scalar"],
)
def test_arrays_that_are_no_weights(x, message):
    with pytest.raises(FormatError, match=message):
        quantise(by_name("Q4_K"), x)


def test_half_is_numpys():
    """The baselines' own rounding helper, against a value known by heart."""
    assert half(1 + 2.0**-11) == 1.0
