"""Plan and grouped experts of a prompt against sorting and float64."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.experts.judge import Matrix
from strata.formats import dequantise
from strata.ops.matvec.tables import codewords
from support.grouped import layer
from support.launch import Kernels

CPU = torch.device("cpu")


def _ints(size: int) -> torch.Tensor:
    return torch.full((size,), -9, dtype=torch.int32)


def _counts(rows: int) -> torch.Tensor:
    return torch.tensor([rows], dtype=torch.int32)


def _planned(ids: torch.Tensor, rows: int, rank: list[int], tile: int) -> list[torch.Tensor]:
    """Pairs, each tile's expert, first and size, and where every rank's tiles and pairs start."""
    kernels, (room, topk), experts = Kernels("strata.ops.prompt.plan"), ids.shape, len(rank)
    sizes, lists = (
        _ints(experts),
        [_ints(room * topk), *(_ints(experts + room * topk // tile) for _ in range(3)), _ints(2 * experts + 2)],
    )
    order = torch.tensor(rank, dtype=torch.int32)
    kernels.count[(experts,)](ids, _counts(rows), topk, sizes, BLOCK=64)
    kernels.arrange[(experts,)](ids, _counts(rows), topk, experts, sizes, order, *lists, TILE=tile, ROOM=16, BLOCK=64)
    return lists


@pytest.mark.parametrize("rows", [1, 30, 50])
def test_plan(rows):
    """By rank of the expert, rising within one; tiles of whole runs; rows behind the last one count nothing."""
    experts, topk, tile = 9, 4, 8
    random = np.random.default_rng(rows)
    rank = random.permutation(experts).tolist() if rows > 1 else list(range(experts))
    ids = np.stack([random.permutation(experts)[:topk] for _ in range(50)]).astype(np.int32)
    pairs, expert, first, size, starts = (x.numpy() for x in _planned(torch.from_numpy(ids), rows, rank, tile))
    flat = ids[:rows].ravel()
    assert pairs[: len(flat)].tolist() == np.argsort(np.array(rank)[flat], kind="stable").tolist()
    found, at, begins = [], 0, []
    for e in np.argsort(rank).tolist():
        mine = int((flat == e).sum())
        begins.append((len(found), at))
        found += [(e, at + i, min(tile, mine - i)) for i in range(0, mine, tile)]
        at += mine
    begins.append((len(found), at))
    assert starts.reshape(2, -1).T.tolist() == [list(one) for one in begins]
    assert list(zip(expert, first, size, strict=True))[: len(found)] == found


def _weights(matrix: Matrix) -> torch.Tensor:
    values = dequantise(matrix.type, matrix.raw).astype(np.float64)
    return torch.from_numpy(values if matrix.scale is None else values * float(matrix.scale))


KINDS = [("IQ3_XXS", "IQ3_XXS", "IQ4_NL"), ("Q8_0", "Q4_K", "Q5_1"), ("NVFP4", "NVFP4", "NVFP4")]


def _ordered(x: torch.Tensor, some: tuple[int, int] | None = None) -> torch.Tensor:
    out = torch.full((len(x), -(-x.shape[1] // 128) * 128), torch.nan, dtype=torch.float16)
    grid = (-(-len(x) // 16), -(-x.shape[1] // 128))
    bounds = _counts(len(x)) if some is None else torch.tensor([-1, *some], dtype=torch.int32)
    kernel = Kernels("strata.ops.prompt.order").order[grid]
    kernel(x, bounds, out, x.shape[1], 1, 2, SPAN=some is not None, ROWS=16)
    return out


def test_the_order_of_a_rows_numbers():
    """Column 16 s + 8 h + 2 t + e of every 128 is number 32 t + 4 s + 2 h + e; zeros behind the row's end."""
    x = torch.arange(2 * 160).view(2, 160).half()
    out = _ordered(x)
    some = _ordered(x.repeat(20, 1), (3, 39))  # not the first rows, nor the last
    assert torch.equal(some[3:39], out.repeat(20, 1)[3:39])
    assert some[:3].isnan().all()
    assert some[39:].isnan().all()
    for row in range(2):
        for at in range(256):
            group, c = divmod(at, 128)
            s, h, t, e = c // 16, c // 8 % 2, c // 2 % 4, c % 2
            number = group * 128 + 32 * t + 4 * s + 2 * h + e
            assert out[row, at] == (x[row, number] if number < 160 else 0)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
def test_rows_of_experts(kinds):
    hidden, inner, experts, topk, rows, tile = 256, 192, 4, 2, 21, 16
    random = np.random.default_rng(len(kinds[1]))
    made = layer(kinds, hidden, inner, experts, random, shared=False)
    kernels, slots, kind = Kernels("strata.ops.prompt.experts"), made.slots, made.slots.layout
    ids = torch.from_numpy(np.stack([random.permutation(experts)[:topk] for _ in range(rows)]).astype(np.int32))
    x = torch.from_numpy(random.standard_normal((rows, hidden))).half()
    lists = _planned(ids, rows, [2, 0, 3, 1], tile)
    h, y = (torch.full((rows * topk, width), torch.nan, dtype=torch.float16) for width in (inner, hidden))
    scaled = slots.scales is not None
    scales = list(slots.scales) if scaled else [torch.zeros(1)] * 3
    most, x_ordered = experts + rows * topk // tile, _ordered(x)
    for low, high in ((1, 4), (0, 1)):  # experts of some ranks, then the others
        kernels.gate_up[(3, most)](
            slots.data, kind.nbytes, kind.up_at, codewords(kind.gate, CPU), codewords(kind.up, CPU), *scales[:2],
            x_ordered, h, slots.slot_of, *lists, low, high, inner, hidden // 32, topk,
            GATE=kind.gate, UP=kind.up, SCALED=scaled, BM=tile, EVEN=True,
        )  # fmt: skip
        assert bool(h.isnan().any()) == (low > 0)
    for low, high in ((0, 3), (3, 4)):
        kernels.down[(4, most)](
            slots.data, kind.nbytes, kind.down_at, codewords(kind.down, CPU), scales[2], _ordered(h), y,
            slots.slot_of, *lists, low, high, hidden, inner // 32, KIND=kind.down, SCALED=scaled, BM=tile, EVEN=False,
        )  # fmt: skip
    order = lists[0].long()
    for at, pair in enumerate(order.tolist()):
        gate, up, down = (_weights(m) for m in made.matrices[int(ids.flatten()[pair])])
        row = x[pair // topk].double()
        g, u = gate @ row, up @ row
        expected = g * torch.sigmoid(g) * u
        # Weights of two roundings to 11 bits, sums of 256 and 96 of them, and rounded results.
        torch.testing.assert_close(h[at].double(), expected, rtol=0.02, atol=0.02 * float(expected.abs().max()))
        after = down @ h[at].double()
        torch.testing.assert_close(y[pair].double(), after, rtol=0.01, atol=0.003 * float(after.abs().max()))


def test_combine_in_the_routers_order():
    kernels, random = Kernels("strata.ops.prompt.experts"), torch.Generator().manual_seed(1)
    y, shared = torch.randn(12, 80, generator=random).half(), torch.randn(4, 80, generator=random).half()
    shares, last = torch.rand(4, 3, generator=random), torch.rand(4, generator=random)
    out = torch.full((4, 80), 7.0)
    kernels.combine[(2, 4)](y, shares, shared, last, _counts(3), out, 80, 3, BLOCK=64)
    expected = torch.zeros(3, 80)
    for j in range(3):
        expected = expected + shares[:3, j : j + 1] * y.view(4, 3, 80)[:3, j].float()
    expected = expected + last[:3, None] * shared[:3].float()
    torch.testing.assert_close(out[:3], expected, rtol=0, atol=1e-6)
    assert (out[3:] == 7).all()


def test_swiglu_of_the_shared_expert():
    x, out = torch.randn(3, 80, generator=torch.Generator().manual_seed(2)) * 4, torch.full((3, 40), 7.0).half()
    Kernels("strata.ops.prompt.streams").swiglu[(2, 3)](x, _counts(2), out, N=40, BLOCK=32)
    gate, up = x[:2].double().split(40, 1)
    torch.testing.assert_close(out[:2].double(), gate * torch.sigmoid(gate) * up, rtol=2.0**-10, atol=1e-6)
    assert (out[2] == 7).all()


def test_an_experts_matrices_are_the_slots():
    from strata.ops.planes import unpack
    from strata.ops.prompt.grouped import matrices

    made = layer(("Q8_0", "Q4_K", "IQ4_NL"), 256, 64, 3, np.random.default_rng(1), shared=False)
    number = int(made.slots.slot_of[1])
    for matrix, expected in zip(matrices(made.slots, number), made.matrices[1], strict=True):
        raw = unpack(matrix.type, matrix.data, matrix.rows, matrix.width)
        assert torch.equal(raw, torch.from_numpy(expected.raw))
