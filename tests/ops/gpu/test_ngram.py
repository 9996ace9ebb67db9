"""The n-gram embedding's kernels against the formulas."""

import pytest
import torch

pytest.importorskip("triton")

from strata.model.config import Ple
from strata.ops import dependent
from strata.ops.elementwise.reference import sigmoid, silu
from strata.ops.gdn.project import convolve
from strata.ops.ngram.hash import row_numbers
from strata.ops.norm.reference import rms_grouped
from support.launch import NATIVE, Kernels

PDL = dependent.launch(torch.device("cuda" if NATIVE else "cpu"))
H, S, TAPS, N, EPS = 48, 4, 4, 3, 1e-6
WIDTH, LONG = S * H, (TAPS - 1) * N
CASE_P03 = Ple(1, 3, 1, 8, TAPS, 99, (3, 5, 7), (0, 101), (101, 103))
REAL = Ple(
    1, 3, 8, 160, TAPS, 248044, (23703573157769, 20109073645365, 8052911324071),
    (0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297,
     160000374, 180000455, 200000548, 220000655, 240000802, 260000955, 280001114, 300001275),
    (20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
     20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171),
)  # fmt: skip


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.ngram.gpu")


def _long(values):
    return torch.tensor(values, dtype=torch.int64)


def _int(values):
    return torch.tensor(values, dtype=torch.int32)


def _numbers(kernels, c: Ple, ids: list[list[int]], history: list[list[int]]) -> torch.Tensor:
    counts = [len(x) for x in ids]
    flat = [i for x in ids for i in x]
    owner = [i for i, n in enumerate(counts) for _ in range(n)]
    out = torch.full((len(flat), c.rows_per_token), -1, dtype=torch.int64)
    kernels.numbers[(len(flat),)](
        _int(flat), _int(history), _int(range(len(ids))), _int([0, *torch.tensor(counts).cumsum(0).tolist()]),
        _int(owner), _long(c.multipliers), _long(c.sizes), _long(c.offsets), out,
        N=c.n, HEADS=c.heads, EOS=c.eos, **PDL,
    )  # fmt: skip
    return out


def test_the_vector_of_case_p03(kernels):
    """The specification's own numbers; an end of text in between cuts the context."""
    out = _numbers(kernels, CASE_P03, [[7, 9, 11]], [[99, 99]])
    assert out.tolist() == [[1, 124], [56, 136], [12, 162]]
    out = _numbers(kernels, CASE_P03, [[7, 99, 11]], [[99, 99]])
    assert out.tolist() == row_numbers([99, 99], [7, 99, 11], CASE_P03).tolist()


def test_the_real_models_vectors(kernels):
    out = _numbers(kernels, REAL, [[1000], [3]], [[248044, 248044], [1, 2]])
    assert out[0, :8].tolist() == [1876085, 31308566, 59776718, 71834192, 97499724, 100188615, 134972424, 142751402]
    assert out[1, 8:].tolist() == [
        161523077, 195939126, 219424565, 220811782, 248020141, 275228530, 284297999, 309645223,
    ]  # fmt: skip


def test_conversations_of_any_lengths(kernels):
    ids = [[5, 248044, 6, 7], [8], [248319, 9, 248044]]
    history = [[1, 2], [248044, 3], [4, 248044]]
    out = _numbers(kernels, REAL, ids, history)
    expected = [
        row for own, before in zip(ids, history, strict=True) for row in row_numbers(before, own, REAL).tolist()
    ]
    assert out.tolist() == expected


@pytest.mark.parametrize("rows", [[1], [4], [2, 5, 1]])
def test_gate_and_smooth(kernels, rows):
    random = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    count = sum(rows)
    key, value, before = normal(count, WIDTH), normal(count, H), normal(count, WIDTH)
    value[0] = 0  # a row that only the epsilon keeps from dividing by nothing
    norms = [normal(WIDTH) for _ in range(3)]
    taps, tails = normal(WIDTH, TAPS), normal(3, LONG, WIDTH)
    slots, first = _int([2, 0, 1][: len(rows)]), _int([0, *torch.tensor(rows).cumsum(0).tolist()])
    owner = _int([i for i, n in enumerate(rows) for _ in range(n)])
    residual, gated, normed = before.clone(), *torch.full((2, count, WIDTH), torch.nan)
    kernels.gate[(count, S)](key, value, residual, *norms, EPS, gated, normed, H=H, S=S, BLOCK=64, **PDL)
    kernels.smooth[(count, 2)](
        residual, gated, normed, tails, slots, first, owner, taps, WIDTH=WIDTH, TAPS=TAPS, N=N, BLOCK=128, **PDL
    )
    k = rms_grouped(key, norms[0], S, EPS).unflatten(-1, (S, H))
    q = rms_grouped(before, norms[1], S, EPS).unflatten(-1, (S, H))
    a = (k * q).sum(-1) / H**0.5
    a = a.sign() * a.abs().clamp(min=1e-6).sqrt()
    expected = (sigmoid(a)[:, :, None] * value[:, None, :]).flatten(1)
    # Sums of H products in another order; a root near zero halves the digits, so of 2^-24 * H there remain 2^-9 at
    # worst, which the sigmoid quarters; sums here are not near zero.
    torch.testing.assert_close(gated, expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(normed, rms_grouped(gated, norms[2], S, EPS), rtol=(H + 8) * 2.0**-24, atol=1e-9)
    for i in range(len(rows)):
        piece = slice(int(first[i]), int(first[i + 1]))
        smooth = silu(convolve(torch.cat((tails[slots[i]], normed[piece])), taps, N))
        torch.testing.assert_close(residual[piece], before[piece] + (gated[piece] + smooth), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("accepted", [0, 1, 5])
def test_commit(kernels, accepted):
    normed = torch.randn(6, WIDTH)
    tails, history, ids = torch.randn(2, LONG, WIDTH), _int([[1, 2], [3, 4]]), _int([5, 6, 7, 8, 9, 10])
    expected = torch.cat((tails[1], normed[1 : 1 + accepted]))[-LONG:].clone()
    other = tails[0].clone()
    kernels.shift[(2, 1)](
        normed, ids, tails, history, _int([1]), _int([1, 6]), _int([accepted]),
        WIDTH=WIDTH, TAPS=TAPS, N=N, BLOCK=128,
    )  # fmt: skip
    assert torch.equal(tails[1], expected)
    assert torch.equal(tails[0], other)
    assert history.tolist() == [[1, 2], [3, 4, 6, 7, 8, 9, 10][accepted : accepted + 2]]
