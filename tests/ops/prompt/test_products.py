"""Products of many rows, and the kernels of the residual streams around them, against float64."""

import pytest
import torch

pytest.importorskip("triton")

from support.launch import Kernels

SCALE, H, S, R, EPS = 64, 96, 4, 32, 1e-6
TILE = {"BM": 32, "BN": 64, "BK": 64, "GROUP": 2}


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.prompt.product")


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def _counts(rows: int) -> torch.Tensor:
    return torch.tensor([rows], dtype=torch.int32)


def _programs(rows: int, columns: int, tile: dict[str, int] = TILE) -> tuple[int]:
    return (-(-rows // tile["BM"]) * -(-columns // tile["BN"]),)


@pytest.mark.parametrize(("rows", "room", "width", "even"), [(70, 70, 128, True), (5, 40, 96, False)])
def test_product(kernels, rows, room, width, even):
    """All tiles, rows there are fewer of than memory, widths that are no multiple of a step."""
    x, w = _normal(room, width).half(), _normal(90, width).half()
    x[rows:] = torch.nan
    out = torch.full((room, 90), 7.0)
    kernels.product[_programs(room, 90)](x, w, _counts(rows), out, 90, width, EVEN=even, **TILE)
    torch.testing.assert_close(out[:rows].double(), x[:rows].double() @ w.double().T / SCALE, rtol=0, atol=1e-6)
    assert (out[rows:] == 7).all()


def test_half_outputs_saturate(kernels):
    x, w = torch.full((1, 64), 1000.0).half(), torch.full((16, 64), 1000.0).half()
    w[8:] *= -1
    out = torch.zeros(1, 16, dtype=torch.float16)
    kernels.product[_programs(1, 16)](x, w, _counts(1), out, 16, 64, EVEN=True, **TILE)
    assert out[0].tolist() == [65504.0] * 8 + [-65504.0] * 8


def test_a_rows_bytes_do_not_depend_on_company(kernels):
    x, w = _normal(70, 256).half(), _normal(64, 256).half()
    whole, alone = torch.zeros(70, 64), torch.zeros(1, 64)
    kernels.product[_programs(70, 64)](x, w, _counts(70), whole, 64, 256, EVEN=True, **TILE)
    for row in (0, 31, 69):
        kernels.product[_programs(1, 64)](x[row : row + 1], w, _counts(1), alone, 64, 256, EVEN=True, **TILE)
        assert torch.equal(alone[0], whole[row])


def test_exact(kernels):
    """Numbers of 22 bits: far closer than float16's eleven."""
    x, w, out, parts = _normal(40, 96), _normal(33, 96), torch.full((40, 33), 7.0), []
    for source in (x / SCALE, w):  # the kernel takes rows as they are and a matrix times SCALE
        high, rest = torch.zeros_like(source).half(), torch.zeros_like(source).half()
        size = source.numel()
        Kernels("strata.ops.prompt.expand").finely[(1,)](source, high, rest, size, BLOCK=4096)
        parts += [high, rest]
    kernels.exact[_programs(40, 33)](*parts, _counts(37), out, 33, 96, EVEN=False, **TILE)
    torch.testing.assert_close(out[:37].double(), x[:37].double() @ w.double().T, rtol=0, atol=3e-5)
    assert (out[37:] == 7).all()


def test_a_read_of_the_streams(kernels):
    """Write-back, norm, narrow rows with strengths, gated mean: all of a read, behind a block's output."""
    rows, room, streams = 35, 40, Kernels("strata.ops.prompt.streams")
    before, out, raw = _normal(room, S * H), _normal(room, H + 1)[:, :H].contiguous(), _normal(room, S)
    norm, down, inject, up = (
        1 + _normal(S * H) / 9,
        _normal(R, S * H) / 20,
        _normal(S, S * H) / 20,
        _normal(S * H, R) / 4,
    )
    x, xn = before.clone(), torch.zeros(room, S * H, dtype=torch.float16)
    streams.write_norm[(room, S)](x, out, raw, norm, EPS, _counts(rows), xn, H=H, S=S, BLOCK=128, WRITE=True)
    strength = 2 * torch.sigmoid(raw / S)
    expected = (before.unflatten(1, (S, H)) + strength[:, :, None] * out[:, None]).flatten(1)
    torch.testing.assert_close(x[:rows], expected[:rows], rtol=0, atol=1e-5)
    assert torch.equal(x[rows:], before[rows:])
    y = expected.double().unflatten(1, (S, H))
    y = (y / (y.square().mean(2, keepdim=True) + EPS).sqrt()).flatten(1) * norm.double()
    torch.testing.assert_close(xn[:rows].double(), y[:rows], rtol=2.0**-11, atol=1e-5)

    w, low, strengths = (
        (torch.cat((down, inject)) * SCALE).half(),
        torch.zeros(room, R, dtype=torch.float16),
        raw.clone(),
    )
    kernels.low_rank[_programs(room, R + S)](xn, w, _counts(rows), low, strengths, R, S * H, S=S, EVEN=True, **TILE)
    sums = xn.double() @ w.double().T / SCALE
    narrow = sums[:, :R] / S
    narrow = narrow * torch.sigmoid(narrow)
    torch.testing.assert_close(low[:rows].double(), narrow[:rows], rtol=2.0**-11, atol=1e-5)
    torch.testing.assert_close(strengths[:rows].double(), sums[:rows, R:], rtol=0, atol=1e-5)
    assert torch.equal(strengths[rows:], raw[rows:])

    (half, rest), wide = torch.zeros(2, room, H, dtype=torch.float16), (up * SCALE).half()
    kernels.gated_mean[_programs(room, H)](low, wide, xn, _counts(rows), half, rest, H=H, S=S, R=R, EVEN=False, **TILE)
    gates = torch.sigmoid(low.double() @ wide.double().T / SCALE)
    expected = (gates * xn.double()).unflatten(1, (S, H)).mean(1)
    torch.testing.assert_close(half[:rows].double(), expected[:rows], rtol=2.0**-11, atol=1e-6)
    torch.testing.assert_close((half.double() + rest.double() / 2048)[:rows], expected[:rows], rtol=0, atol=1e-6)
    assert not half[rows:].any()

    settled = before.clone()
    streams.write[(room, S)](settled, out, raw, _counts(rows), H=H, S=S, BLOCK=128)
    assert torch.equal(settled, x)
