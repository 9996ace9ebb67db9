"""The quantised product on a GPU against the judge, byte for byte."""

import numpy as np
import pytest
import torch

from strata.experts import judge
from strata.formats import by_name
from strata.ops import planes
from strata.ops.matvec import floats
from strata.ops.matvec import triton as matvec
from strata.ops.planes import LAYOUTS
from strata.ops.variants import Tile
from support.corners import activations, matrix

pytestmark = pytest.mark.gpu

TILES = {
    "two": Tile(),
    "four": Tile(tiles=2),
    "plain": Tile(ahead=1),
    "four warps": Tile(rows=8, warps=4),
    "short": Tile(rows=8, step=4),
    "wide": Tile(rows=1, step=32, ahead=2, group=2),
    "eights": Tile(rows=4, tiles=2, step=8, ahead=2),
}


def _width(name, tile):
    short = 640 if 640 % by_name(name).weights == 0 else 768
    return short if tile.step < 16 else 2560


@pytest.fixture(scope="module")
def case():
    """A matrix with corners, its planes, eight rows, and the judge's product; made once for each type and width."""
    made = {}

    def get(name, width):
        if (name, width) not in made:
            rng = np.random.default_rng([width, *name.encode()])
            raw, x = matrix(name, (70, width), rng), activations(width, rng)
            expected = judge.product(by_name(name), raw, *judge.quantise_rows(x))
            w = matvec.matrix(name, torch.from_numpy(raw).cuda(), width)
            made[name, width] = w, torch.from_numpy(x).cuda(), expected
        return made[name, width]

    return get


def _check(case_, rows, tile):
    w, x, expected = case_
    out = torch.full((rows, w.rows), float("nan"), device="cuda")
    matvec.product(w, matvec.quantise(x[8 - rows :].contiguous()), out, tile)
    np.testing.assert_array_equal(out.cpu().numpy().view(np.uint32), expected[8 - rows :].view(np.uint32))


@pytest.mark.parametrize("rows", range(1, 9))
@pytest.mark.parametrize("name", LAYOUTS)
def test_bytes_of_the_judge(name, rows, case):
    _check(case(name, 2560), rows, TILES["two"])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("tile", [key for key in TILES if key != "two"])
@pytest.mark.parametrize("name", LAYOUTS)
def test_tiles_do_not_show(name, tile, rows, case):
    _check(case(name, _width(name, TILES[tile])), rows, TILES[tile])


@pytest.mark.parametrize("name", ["Q8_0", "Q2_0", "Q4_1", "Q5_1", "IQ4_NL", "MXFP4", "NVFP4"])
@pytest.mark.parametrize("width", [64, 320, 640])
def test_steps_that_are_not_full(name, width, case):
    _check(case(name, width), 3, TILES["four"])


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_default_variant(name, case):
    for rows in (1, 4):
        _check(case(name, 2560), rows, None)


def test_quantised_rows_have_the_judges_bytes():
    x = activations(2560, np.random.default_rng(3))
    q, s = judge.quantise_rows(x)
    found = matvec.quantise(torch.from_numpy(x).cuda())
    np.testing.assert_array_equal(found.codes().cpu().numpy(), q)
    np.testing.assert_array_equal(found.s.cpu().numpy().view(np.uint32), s.view(np.uint32))
    z = s * q.reshape(8, -1, 32).astype(np.int32).sum(-1).astype(np.float32)
    np.testing.assert_array_equal(found.z.cpu().numpy().view(np.uint32), z.view(np.uint32))


@pytest.mark.parametrize("name", ["Q8_0", "IQ3_XXS", "Q5_K"])
def test_replays_of_a_graph_with_changing_inputs(name, case):
    w, x, expected = case(name, 2560)
    rows = torch.empty((4, 2560), device="cuda")
    quantised = matvec.empty_activations(4, 2560, rows.device)
    out = torch.empty((4, w.rows), device="cuda")

    def run():
        matvec.quantise(rows, quantised)
        matvec.product(w, quantised, out)

    rows.copy_(x[:4])
    run()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    rng = np.random.default_rng(0)
    for _ in range(50):
        chosen = rng.integers(0, 8, 4)
        rows.copy_(x[chosen.tolist()])
        out.fill_(float("nan"))
        graph.replay()
        np.testing.assert_array_equal(out.cpu().numpy().view(np.uint32), expected[chosen].view(np.uint32))


@pytest.mark.parametrize("name", LAYOUTS)
def test_repacking_on_the_device_is_the_same(name):
    kind = by_name(name)
    raw = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (9, kind.row_bytes(1280)), dtype=np.uint8))
    packed = planes.pack(
        name, raw.cuda(), 1280, torch.zeros(LAYOUTS[name].nbytes(9, 1280), dtype=torch.uint8, device="cuda")
    )
    host = planes.pack(name, raw, 1280, torch.zeros(LAYOUTS[name].nbytes(9, 1280), dtype=torch.uint8))
    assert torch.equal(packed.cpu(), host)
    assert torch.equal(planes.unpack(name, packed, 9, 1280).cpu(), raw)


@pytest.mark.parametrize("width", [48, 320, 2560, 10240])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_floats_are_near_and_rows_independent(dtype, width):
    generator = torch.Generator(device="cuda").manual_seed(width)
    w = torch.randn((70, width), generator=generator, device="cuda").to(dtype)
    x = torch.randn((8, width), generator=generator, device="cuda")
    whole = floats.product(w, x, torch.full((8, 70), float("nan"), device="cuda"))
    lanes = floats.shape(width)[0]
    limit = (2 * -(-width // lanes) + lanes.bit_length()) * 2.0**-24 * (x.double().abs() @ w.double().abs().T)
    assert ((whole.double() - x.double() @ w.double().T).abs() <= limit).all()
    for rows in range(1, 9):
        for tiles in (1, 2):
            assert torch.equal(floats.product(w, x[8 - rows :].contiguous(), tiles=tiles), whole[8 - rows :])
