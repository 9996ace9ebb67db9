"""Chains of guesses: a step gets what it got when the host fed it, and the end is where the host would have ended."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.gpu.batch import GpuBatch
from strata.ops.gpu.pool import Pool, head_config
from support.launch import NATIVE
from support.network import network

DEVICE = torch.device("cuda" if NATIVE else "cpu")
V = 5000  # three parts
FIELDS = ("ids", "owner", "positions", "starts", "homes", "begins", "seen", "slots", "lengths", "places", "first")


class Steps:
    """A head of the simplest kind: predictions follow from the newest token and the residual, which counts steps."""

    def __init__(self, sure: list[float], *, broken: int | None = None) -> None:
        random = torch.Generator().manual_seed(5)
        self.following = torch.randint(0, V, (V,), generator=random).to(DEVICE)
        # The likeliest token's logit over zeros gives it this probability.
        peak = [float(torch.tensor(p * (V - 1) / (1 - p)).log()) for p in sure]
        self.peak = torch.tensor(peak, device=DEVICE)
        self.broken, self.seen = broken, []

    def __call__(self, given: torch.Tensor, batch: GpuBatch) -> tuple[torch.Tensor, torch.Tensor]:
        step = given[-1:, 0].long()
        token = self.following[batch.ids[-1:].long()]
        logits = torch.zeros((1, V), device=DEVICE).index_copy(1, token, self.peak[step][None])
        # Of equal ones the lower: another one as likely above.
        logits = logits.index_copy(1, (token + 1).clamp(max=V - 1), self.peak[step][None] * (step == 2))
        if self.broken is not None:
            logits = torch.where((step == self.broken)[:, None], torch.nan, logits)
        if not (NATIVE and torch.cuda.is_current_stream_capturing()):
            self.seen.append({name: getattr(batch, name).tolist() for name in FIELDS})
        return given[-1:] + 1, logits

    def tokens(self, first: int, count: int) -> list[int]:
        """What is likeliest after one another."""
        found = []
        for _ in range(count):
            first = int(self.following[first])
            found.append(first)
        return found


@pytest.fixture
def chains():
    from strata.ops.gpu.chain import Chains

    config = network("base").config
    pool = Pool(head_config(config), DEVICE, slots=2, cells=512)
    one = SimpleNamespace(S=1, H=config.S * config.H, V=V)
    return Chains(SimpleNamespace(graphs=NATIVE), pool, one, DEVICE), pool


def begun(pool: Pool, length: int):
    state = pool.new_state()
    pool.reserve(state, length)
    state.length = length
    return state


def residual(pool: Pool, rows: int) -> torch.Tensor:
    return torch.zeros((rows, pool.config.S * pool.config.H), device=DEVICE)


@pytest.mark.parametrize(("length", "rows", "depth"), [(0, 1, 1), (1, 3, 7), (61, 8, 4), (63, 1, 3)])
def test_a_step_gets_what_the_host_would_have_fed_it(chains, length, rows, depth):
    run, pool = chains
    state, steps = begun(pool, length), Steps([0.9] * 8)
    ids = list(range(10, 10 + rows))
    for _ in range(3):  # the second time it is recorded, where there are records
        found = run.run(state, ids, residual(pool, rows), depth, 0.3, steps, "a")
        assert list(found) == steps.tokens(ids[-1], depth)
    assert state.length == length, "nothing is counted"
    for step, told in enumerate(steps.seen[:depth]):
        fed = ids if step == 0 else [found[step - 1]]
        begin = length if step == 0 else length + rows - 1 + step
        cells = list(range(begin, begin + len(fed)))
        assert told == {
            "ids": fed, "owner": [0] * len(fed), "positions": cells, "starts": [c // 4 * 4 for c in cells],
            "homes": [state.slot] * len(fed), "begins": [0] * len(fed), "seen": [c + 1 for c in cells],
            "slots": [state.slot], "lengths": [begin], "places": [state.place], "first": [0, len(fed)],
        }  # fmt: skip


@pytest.mark.parametrize(
    ("floor", "sure", "broken", "right"),
    [
        (0.5, [0.9, 0.51, 0.49, 0.9], None, 2),
        (0.5, [0.3, 0.9, 0.9, 0.9], None, 0),
        (0.0, [1e-3, 1e-3, 1e-3, 1e-3], None, 4),
        (0.3, [0.9, 0.9, 0.9, 0.9], 1, 1),
        (0.3, [0.9, 0.9, 0.9, 0.9], 0, 0),
    ],
)
def test_it_ends_before_a_token_that_is_not_sure_enough(chains, floor, sure, broken, right):
    run, pool = chains
    state, steps = begun(pool, 5), Steps(sure, broken=broken)
    for _ in range(3):
        found = run.run(state, [7], residual(pool, 1), 4, floor, steps, (floor, broken))
        assert list(found) == steps.tokens(7, right)


def test_one_shape_serves_every_place_and_floor(chains):
    run, pool = chains
    one, other, steps = begun(pool, 5), begun(pool, 90), Steps([0.6] * 8)
    for _ in range(3):
        assert list(run.run(one, [7, 8], residual(pool, 2), 3, 0.3, steps, "a")) == steps.tokens(8, 3)
        assert list(run.run(other, [9, 3], residual(pool, 2), 3, 0.3, steps, "a")) == steps.tokens(3, 3)
        assert run.run(one, [7, 8], residual(pool, 2), 3, 0.7, steps, "a") == ()
