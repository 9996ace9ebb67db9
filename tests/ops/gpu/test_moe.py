"""The router's choice on the GPU against a stable sort, and the plan made with it against the plan's own kernel."""

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

from strata.ops import dependent
from support.launch import NATIVE, Kernels

PDL = dependent.launch(torch.device("cuda" if NATIVE else "cpu"))


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.moe.gpu")


def _choose(kernels, logits: np.ndarray, topk: int, slot_of: np.ndarray | None = None, shared_slot: int = -1):
    """Experts, weights, the shared expert's weight; and the plan's five arrays if there are slots."""
    rows, count = len(logits), logits.shape[1] - 1
    numbers = torch.from_numpy(np.ascontiguousarray(logits, dtype=np.float32))
    out = (
        torch.full((rows, topk), -1, dtype=torch.int32),
        torch.full((rows, topk), torch.nan),
        torch.full((rows,), torch.nan),
    )
    common = {"E": count, "TOPK": topk, "COUNT": 1 << (-(-count // 32) - 1).bit_length(), **PDL}
    if slot_of is None:
        kernels.route[(rows,)](numbers, *out, **common, num_warps=1)
        return out, ()
    size, together = 1 << (rows * topk).bit_length(), 1 << (rows - 1).bit_length()
    plan = [torch.full(shape, -999, dtype=torch.int32) for shape in ((size,), (size,), (size,), (size, 8), (2,))]
    kernels.route_and_plan[(1,)](
        numbers, *out, torch.from_numpy(slot_of), *plan, shared_slot,
        T=rows, ROWS=together, PLACES=16 if topk <= 16 else 32, M=size, **common, num_warps=together,
    )  # fmt: skip
    return out, plan


def _expected(logits: np.ndarray, topk: int) -> tuple[np.ndarray, np.ndarray]:
    """Stable sort, and softmax over the chosen in float64."""
    own = logits[:, :-1].astype(np.float64)
    chosen = np.argsort(-own, axis=1, kind="stable")[:, :topk]
    x = np.take_along_axis(own, chosen, 1)
    share = np.exp(x - x[:, :1])
    return chosen, share / share.sum(1, keepdims=True)


def _logits(rows: int, count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, count + 1)).astype(np.float32) * 3


@pytest.mark.parametrize(("rows", "count", "topk"), [(1, 512, 10), (3, 512, 10), (8, 512, 10), (2, 16, 4), (5, 40, 20)])
def test_choice_is_a_stable_sort(kernels, rows, count, topk):
    logits = _logits(rows, count, rows)
    logits[0, : count // 2] = logits[0, 0]  # equals, the lower first
    expected, shares = _expected(logits, topk)
    slot_of = np.arange(count, dtype=np.int32)
    for out, _ in (_choose(kernels, logits, topk), _choose(kernels, logits, topk, slot_of)):
        assert np.array_equal(out[0].numpy(), expected)
        # Two exponentials of differences rounded once, a sum of topk, and a division.
        np.testing.assert_allclose(out[1].numpy(), shares, rtol=(topk + 30) * 2.0**-23, atol=0)
        np.testing.assert_allclose(out[2].numpy(), 1 / (1 + np.exp(-logits[:, -1].astype(np.float64))), rtol=1e-6)


def test_rows_do_not_depend_on_company(kernels):
    logits, slot_of = _logits(8, 512, 9), np.arange(512, dtype=np.int32)
    together, _ = _choose(kernels, logits, 10, slot_of)
    for row in (0, 3, 7):
        for alone, _ in (
            _choose(kernels, logits[row : row + 1], 10, slot_of),
            _choose(kernels, logits[row : row + 1], 10),
        ):
            for x, y in zip(together, alone, strict=True):
                assert x[row : row + 1].numpy().tobytes() == y.numpy().tobytes()


def test_numbers_that_mean_nothing(kernels):
    """Zeros of both signs are equal; -inf comes behind every number, and what is no number behind that."""
    logits = np.full((4, 41), -np.inf, np.float32)
    logits[0, [3, 5, 7]] = [-0.0, 0.0, -0.0]
    logits[1, :40] = np.nan
    logits[2, :40] = np.nan
    logits[2, [9, 20]] = [-np.inf, -3]
    logits[3, 30] = np.inf
    with np.errstate(invalid="ignore"):
        out, _ = _choose(kernels, logits, 4)
    assert out[0].tolist() == [[3, 5, 7, 0], [0, 1, 2, 3], [20, 9, 0, 1], [30, 0, 1, 2]]
    np.testing.assert_array_equal(out[1][0].numpy(), np.float32([1 / 3, 1 / 3, 1 / 3, 0]))
    assert out[1][[1, 2, 3]].isnan().any(1).all()  # a request of such logits ends; see the head's check


@pytest.mark.parametrize(("rows", "topk"), [(1, 10), (2, 3), (3, 10), (8, 10), (2, 20)])
@pytest.mark.parametrize("shared", [-1, 77])
def test_the_plan_is_that_of_the_choice(kernels, rows, topk, shared):
    """Few experts, so that rows share some; half without a slot."""
    count, random = 2 * topk + 1, np.random.default_rng(rows + topk)
    slot_of = np.where(random.random(count) < 0.5, -1, random.permutation(count)).astype(np.int32)
    (chosen, _, _), found = _choose(kernels, _logits(rows, count, topk), topk, slot_of, shared)
    size = len(found[0])
    expected = [torch.full_like(x, -999) for x in found]
    Kernels("strata.ops.experts.plan").plan_kernel[(1,)](
        chosen, torch.from_numpy(slot_of), *expected, rows * topk, rows, count, shared, M=size, **PDL
    )
    for x, y in zip(found, expected, strict=True):
        assert torch.equal(x, y)
    assert found[-1].sum() == len(np.unique(chosen)) + (shared >= 0)
