"""Greedy choice, acceptance and routing kernels against the engine's own choice and float64."""

import pytest
import torch

pytest.importorskip("triton")

from strata.engine.choice import choose
from strata.engine.sampling import Sampling
from support.launch import Kernels

BLOCK = 256


def _best(logits: torch.Tensor, banned: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    triton = Kernels("strata.ops.choice.gpu")

    rows, vocabulary = logits.shape
    parts = -(-vocabulary // BLOCK)
    peaks, sums = torch.full((2, rows, parts), torch.nan)
    places, faults = torch.full((2, rows, parts), -9, dtype=torch.int32)
    tokens, bad = torch.full((2, rows), -9, dtype=torch.int32)
    logprobs = torch.full((rows,), torch.nan)
    triton.best_parts[(rows, parts)](logits, banned, peaks, places, sums, faults, vocabulary, parts, BLOCK=BLOCK)
    triton.best[(rows,)](peaks, places, sums, faults, tokens, logprobs, bad, parts, BLOCK=8)
    return tokens, logprobs, bad


def test_the_likeliest_token_and_its_probability():
    logits = torch.randn(5, 1000, generator=torch.Generator().manual_seed(2)) * 4
    logits[1] = 0.5  # all equal: the lowest id
    logits[2, 700] = logits[2, 30] = 99  # of two the lower
    logits[3, 5] = torch.nan  # of a banned id: nobody's business
    banned = torch.zeros(1000, dtype=torch.int8)
    banned[[5, 999]] = 1
    tokens, logprobs, bad = _best(logits, banned)
    for row in range(5):
        expected = choose(logits[row].numpy(), Sampling(), 0, [5, 999])
        assert int(tokens[row]) == expected.id
        # A sum of 1000 exponentials of 2 ulp each.
        assert abs(float(logprobs[row]) - expected.logprob) < 1e-5
    assert tokens[1:3].tolist() == [0, 30]
    assert bad.tolist() == [0] * 5


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_is_no_distribution_is_marked(value):
    logits = torch.randn(3, 600)
    logits[1, 400] = value
    _, _, bad = _best(logits, torch.zeros(600, dtype=torch.int8))
    assert bad.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("chosen", "fed", "bad", "stops", "expected"),
    [
        ([5, 6, 7, 8], [1, 5, 6, 7], [0] * 4, [], 4),
        ([5, 6, 7, 8], [1, 5, 9, 7], [0] * 4, [], 2),
        ([5, 6, 7, 8], [1, 9, 6, 7], [0] * 4, [], 1),
        ([5, 6, 7, 8], [1, 5, 6, 7], [0] * 4, [3, 6], 2),
        ([5, 6, 7, 8], [1, 5, 6, 7], [0, 1, 0, 0], [], 2),
        ([5], [1], [0], [5], 1),
    ],
)
def test_acceptance(chosen, fed, bad, stops, expected):
    triton = Kernels("strata.ops.choice.gpu")

    def ints(values):
        return torch.tensor(values, dtype=torch.int32)

    # A conversation of one row before it, and one after it, keep their own.
    accepted = ints([-9, -9, -9])
    count = len(chosen)
    triton.accept[(3,)](
        ints([0, *fed, 0]), ints([0, *chosen, 0]), ints([0, *bad, 0]), ints(stops or [-1]), len(stops),
        ints([0, 1, 1 + count, 2 + count]), accepted, ROWS=8,
    )  # fmt: skip
    assert accepted.tolist() == [1, expected, 1]


@pytest.mark.parametrize("kind", ["random", "ties", "all equal", "minus infinity"])
def test_routing(kind):
    """Against a stable sort in float64 (case P07)."""
    triton = Kernels("strata.ops.moe.gpu")

    logits = torch.randn(4, 512, generator=torch.Generator().manual_seed(4)) * 2
    if kind == "ties":
        logits = (logits * 2).round()
    if kind == "all equal":
        logits = torch.zeros(4, 512)
    if kind == "minus infinity":
        logits[:, 3:] = -torch.inf
    experts, weights = torch.full((4, 10), -9, dtype=torch.int32), torch.full((4, 10), torch.nan)
    gates, shared = torch.tensor([[-1.0], [0.0], [2.0], [50.0]]), torch.full((4,), torch.nan)
    triton.route[(4,)](torch.cat((logits, gates), 1), experts, weights, shared, E=512, TOPK=10, BLOCK=512)
    torch.testing.assert_close(shared, gates[:, 0].sigmoid(), rtol=4 * 2.0**-24, atol=0)
    shares, order = torch.sort(logits.double().softmax(-1), dim=-1, descending=True, stable=True)
    assert torch.equal(experts.long(), order[:, :10])
    expected = shares[:, :10] / shares[:, :10].sum(-1, keepdim=True)
    # Two exponentials of 2 ulp, a sum of ten and a division.
    torch.testing.assert_close(weights.double(), expected, rtol=16 * 2.0**-24, atol=1e-30)
