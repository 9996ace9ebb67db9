"""The quantised product in Triton's interpreter against the judge, byte for byte."""

import numpy as np
import pytest
import torch

from strata.errors import FormatError
from strata.experts import judge
from strata.formats import by_name
from strata.ops.matvec import reference
from strata.ops.matvec import triton as matvec
from strata.ops.planes import LAYOUTS
from strata.ops.variants import Tile
from support.corners import activations, matrix

WHOLE, FOUR, WIDE = Tile(rows=32), Tile(rows=32, step=4), Tile(rows=16, tiles=2, step=32)


def _check(name, raw, x, tile, scale=None):
    """One product with a poisoned output, against the judge."""
    q, s = judge.quantise_rows(x)
    expected = judge.matrix_product(judge.Matrix(by_name(name), raw, scale), q, s)
    assert np.isfinite(expected).all()
    held = None if scale is None else torch.tensor([scale])
    w = matvec.matrix(name, torch.from_numpy(raw), x.shape[1], held)
    quantised = matvec.quantise(torch.from_numpy(x))
    out = torch.full((len(x), len(raw)), float("nan"))
    matvec.product(w, quantised, out, tile)
    np.testing.assert_array_equal(out.numpy().view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_of_the_judge(name, rows):
    rng = np.random.default_rng([rows, *name.encode()])
    _check(name, matrix(name, (30, 256), rng), activations(256, rng)[8 - rows :], WHOLE)


OTHERS = [
    (name, width, rows)
    for name in LAYOUTS
    for width, rows in ((64, 4), (640, 1), (640, 6), (2560, 2))
    if width % by_name(name).weights == 0
]


@pytest.mark.parametrize(("name", "width", "rows"), OTHERS)
def test_bytes_of_the_judge_at_other_widths(name, width, rows):
    """Of Pebble's experts, of down, and of hidden rows; several steps, and steps that are not full."""
    rng = np.random.default_rng([width, rows, *name.encode()])
    tile = WIDE if width == 2560 else WHOLE
    _check(name, matrix(name, (26, width), rng), activations(width, rng)[:rows], tile)


@pytest.mark.parametrize("name", LAYOUTS)
def test_steps_of_four_blocks(name):
    """The geometry for rows of 20 blocks; types with blocks of 256 have 24 at the least width that needs all lanes."""
    width = 640 if 640 % by_name(name).weights == 0 else 768
    rng = np.random.default_rng(list(name.encode()))
    _check(name, matrix(name, (30, width), rng), activations(width, rng)[2:4], FOUR)


def test_tiles_do_not_show():
    """Any rows, tiles and loads ahead; a number of rows that is no multiple of any."""
    rng = np.random.default_rng(5)
    raw, x = matrix("Q5_1", (37, 640), rng), activations(640, rng)[3:5]
    for tile in (Tile(rows=16, tiles=2), Tile(rows=64, ahead=1), Tile(rows=8, tiles=4, step=4), WIDE):
        _check("Q5_1", raw, x, tile)


@pytest.mark.parametrize("step", [4, 8, 16, 32])
def test_the_last_step_need_not_be_full(step):
    """21 blocks, with accumulators that take turns and without; and rows that are taken in pieces."""
    rng = np.random.default_rng(step)
    raw, x = matrix("Q5_1", (19, 672), rng), activations(672, rng)[2:4]
    _check("Q5_1", raw, x, Tile(rows=16, tiles=2, step=step, ahead=2))
    width = 32 * (26 * step + 1)
    raw, x = matrix("Q8_0", (3, width), rng), activations(width, rng)[3:4]
    _check("Q8_0", raw, x, Tile(rows=4, step=step, ahead=3))


def test_rows_of_activations_in_groups():
    rng = np.random.default_rng(8)
    raw, x = matrix("Q8_0", (19, 640), rng), activations(640, rng)
    for rows in (1, 2, 5, 8):
        _check("Q8_0", raw, x[:rows], Tile(rows=16, step=32, ahead=2, group=2))


def test_a_scale_of_the_whole_matrix():
    rng = np.random.default_rng(6)
    _check("NVFP4", matrix("NVFP4", (8, 256), rng), activations(256, rng)[:2], WHOLE, np.float32(0.37))


def test_the_largest_sums():
    """Q6_K at 0.8% below 2^24, Q8_0 with codes of -128: nothing saturates on the way."""
    x = np.full((2, 512), 1.0, dtype=np.float32)
    x[1] = -1
    q6 = np.zeros((1, 2, 210), dtype=np.uint8)
    q6[..., 192:208], q6[..., 208:] = 0x80, np.float16([1]).view(np.uint8)
    q8 = np.full((1, 16, 34), 0x80, dtype=np.uint8)
    q8[..., :2] = np.float16([1]).view(np.uint8)
    _check("Q6_K", q6.reshape(1, -1), x, Tile(rows=2))
    _check("Q8_0", q8.reshape(1, -1), x, Tile(rows=2))


def test_quantised_rows_have_the_judges_bytes():
    x = activations(2560, np.random.default_rng(3))
    q, s = judge.quantise_rows(x)
    found = matvec.empty_activations(8, 2560, torch.device("cpu"))
    found.q.fill_(-128), found.s.fill_(float("nan")), found.z.fill_(float("nan"))
    matvec.quantise(torch.from_numpy(x), found)
    np.testing.assert_array_equal(found.codes().numpy(), q)
    np.testing.assert_array_equal(found.s.numpy().view(np.uint32), s.view(np.uint32))
    z = s * q.reshape(8, -1, 32).astype(np.int32).sum(-1).astype(np.float32)
    np.testing.assert_array_equal(found.z.numpy().view(np.uint32), z.view(np.uint32))


def test_the_reference_is_the_judge():
    rng = np.random.default_rng(7)
    raw, x = matrix("IQ4_NL", (4, 64), rng), activations(64, rng)
    expected = judge.product(by_name("IQ4_NL"), raw, *judge.quantise_rows(x))
    np.testing.assert_array_equal(reference.product("IQ4_NL", torch.from_numpy(raw), torch.from_numpy(x)), expected)


def test_operands_that_do_not_fit_are_refused():
    w = matvec.matrix("Q8_0", torch.zeros((4, 68), dtype=torch.uint8), 64)
    x = matvec.empty_activations(1, 64, torch.device("cpu"))
    with pytest.raises(FormatError, match="not 9"):
        matvec.product(w, matvec.empty_activations(9, 64, torch.device("cpu")))
    with pytest.raises(FormatError, match="width 64, not 1 of 32"):
        matvec.product(w, matvec.empty_activations(1, 32, torch.device("cpu")))
    with pytest.raises(FormatError, match=r"\[1, 4\]"):
        matvec.product(w, x, torch.zeros((1, 5)))
    with pytest.raises(FormatError, match="multiple of 32"):
        matvec.quantise(torch.zeros((1, 33)))
    short = matvec.PlaneMatrix("Q8_0", 4, 64, w.data[:-16])
    with pytest.raises(FormatError, match="bytes"):
        matvec.product(short, x)
