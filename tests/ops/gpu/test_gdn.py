"""The delta rule's kernels against the torch formulas."""

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.elementwise.reference import sigmoid, silu, softplus
from strata.ops.gdn.project import convolve, unit
from strata.ops.gdn.recurrent import recurrent
from strata.ops.norm.reference import rms
from support.launch import Kernels, holds_quantised, poisoned

NK, NV, D, TAPS, LAYERS, SLOTS, PLACES, VALUES = 2, 4, 32, 4, 2, 3, 6, 16
CHANNELS = (2 * NK + NV) * D
EPS = 1e-6
WIDTH = 48
HEADS = {"NK": NK, "NV": NV, "D": D}


@pytest.fixture(scope="module")
def kernels():
    return Kernels("strata.ops.gdn.gpu")


def padded(rows: torch.Tensor, layer: int) -> torch.Tensor:
    """One layer's rows among those of all layers."""
    every = torch.zeros(LAYERS, *rows.shape)
    every[layer] = rows
    return every


class Case:
    """A window of some conversations, with everything poisoned that has to be written."""

    def __init__(self, rows: list[int], seed: int = 0) -> None:
        random = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        count = sum(rows)
        self.rows = rows
        self.tails = normal(SLOTS, LAYERS, TAPS - 1, CHANNELS)
        self.states = normal(PLACES, LAYERS, NV, D, D)
        self.places = torch.tensor([1, 5, 0][: len(rows)], dtype=torch.int32)
        self.spares = torch.tensor([4, 2, 3][: len(rows)], dtype=torch.int32)
        self.slots = torch.tensor([2, 0, 1][: len(rows)], dtype=torch.int32)
        self.first = torch.tensor([0, *torch.tensor(rows).cumsum(0).tolist()], dtype=torch.int32)
        self.taps, self.a, self.dt = normal(CHANNELS, TAPS), -normal(NV).exp(), normal(NV)
        self.norm = normal(D)
        self.u, self.z = normal(8, CHANNELS)[:count], normal(8, NV * D)[:count]
        self.x, self.gates = normal(8, WIDTH)[:count], normal(2 * NV, WIDTH) / WIDTH**0.5
        self.gated = torch.full((count, NV * D), torch.nan)
        self.q, self.s, self.sums = poisoned(count, NV * D)
        self.owner = torch.tensor([i for i, n in enumerate(rows) for _ in range(n)], dtype=torch.int32)
        self.kept, self.mixed = torch.full((2, count, CHANNELS), torch.nan)
        self.steps = torch.full((count, NV * D), torch.nan)
        self.decay = torch.full((count, NV), torch.nan)

    def run(self, kernels, layer: int) -> None:
        out = torch.full_like(self.z, torch.nan)
        kernels.window[(NV, len(self.rows), D // VALUES)](
            self.u, self.x, self.gates, self.tails, self.slots, self.first, self.taps,
            self.a, self.dt, self.states, self.places, self.spares,
            self.kept, self.mixed, self.steps, self.decay, torch.full_like(self.decay, torch.nan), out, layer,
            LAYERS=LAYERS, TAPS=TAPS, VALUES=VALUES, WIDTH=WIDTH, PART=32, PDL=False, enable_fp_fusion=False, **HEADS,
        )  # fmt: skip
        outputs = (self.gated, self.q, self.s, self.sums)
        kernels.gate[(sum(self.rows), NV)](out, self.z, self.norm, EPS, *outputs, NV=NV, D=D, PDL=False)

    def expected(self, conversation: int, layer: int, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Gated outputs [rows, NV*D] and the state after them."""
        begin, slot = int(self.first[conversation]), int(self.slots[conversation])
        piece = slice(begin, begin + rows)
        mixed = silu(convolve(torch.cat((self.tails[slot, layer], self.u[piece])), self.taps))
        alpha, beta = (self.x[piece] @ self.gates.T).split(NV, -1)
        q, k, v = mixed.split((NK * D, NK * D, NV * D), -1)
        o, state = recurrent(
            unit(q.unflatten(-1, (NK, D))) * D**-0.5,
            unit(k.unflatten(-1, (NK, D))),
            v.unflatten(-1, (NV, D)),
            sigmoid(beta),
            self.a * softplus(alpha + self.dt),
            self.states[self.places[conversation], layer],
        )
        z = self.z[piece].unflatten(-1, (NV, D))
        return (rms(o, self.norm, EPS) * sigmoid(z)).flatten(1), state

    def close(self, conversation: int, layer: int, rows: int, state: torch.Tensor) -> None:
        """The state differs from the formula's by roundings only.

        A row's state is a sum of products over D keys, twice; each sum of D terms in another order moves by at most
        D * 2^-24 of the sum of magnitudes, which is below 20 here; rows add up.
        """
        _, expected = self.expected(conversation, layer, rows)
        torch.testing.assert_close(state, expected, rtol=0, atol=rows * 2 * D * 2.0**-24 * 20)


@pytest.mark.parametrize("rows", [[1], [4], [1, 2, 1], [3, 1, 2]])
def test_windows_of_several_conversations(kernels, rows):
    case, layer = Case(rows), 1
    before = case.states.clone()
    case.run(kernels, layer)
    for i, count in enumerate(rows):
        case.close(i, layer, count, case.states[case.spares[i], layer])
        expected, _ = case.expected(i, layer, count)
        piece = slice(int(case.first[i]), int(case.first[i]) + count)
        # As for the state; then a norm, whose root and division add a few roundings, and a gate.
        torch.testing.assert_close(case.gated[piece], expected, rtol=1e-4, atol=1e-4)
    holds_quantised(case.gated, case.q, case.s, case.sums)
    assert torch.equal(case.kept, case.u)
    untouched = [place for place in range(PLACES) if place not in case.spares.tolist()]
    assert torch.equal(case.states[untouched], before[untouched])
    assert torch.equal(case.states[:, 1 - layer], before[:, 1 - layer])


def test_a_row_has_the_bytes_it_has_alone(kernels):
    """Rows of one window, against windows of one row committed in between."""
    whole, single = Case([4]), Case([4])
    whole.run(kernels, 0)
    accepted = torch.tensor([1], dtype=torch.int32)
    for row in range(4):
        one = Case([1])
        for name in ("tails", "states", "places", "spares"):
            setattr(one, name, getattr(single, name))
        for name in ("u", "z", "x", "gated", "q", "s", "sums"):
            setattr(one, name, getattr(single, name)[row : row + 1])
        one.run(kernels, 0)
        kernels.shift[(CHANNELS // 64, 1, LAYERS)](
            padded(one.kept, 0),
            one.tails,
            one.slots,
            one.first,
            accepted,
            1,
            LAYERS=LAYERS,
            CHANNELS=CHANNELS,
            TAPS=TAPS,
            BLOCK=64,
            PDL=False,
        )
        one.places[0], one.spares[0] = int(one.spares[0]), int(one.places[0])
    assert torch.equal(whole.gated, single.gated)
    assert torch.equal(whole.q, single.q)
    assert torch.equal(whole.s, single.s)
    after = single.states[single.places[0], 0]
    assert torch.equal(whole.states[whole.spares[0], 0], after)


@pytest.mark.parametrize("accepted", [0, 1, 2, 3])
def test_committing_some_rows_leaves_what_a_shorter_window_leaves(kernels, accepted):
    case, short = Case([3]), Case([max(accepted, 1)])
    slot, layer, spare = int(case.slots[0]), 1, int(case.spares[0])
    for name in ("u", "z", "x"):
        setattr(short, name, getattr(case, name)[: max(accepted, 1)])
    short.states, short.tails = case.states.clone(), case.tails.clone()
    before = case.states.clone()
    case.run(kernels, layer)
    short.run(kernels, layer)
    count = torch.tensor([accepted], dtype=torch.int32)
    rows = [padded(x, layer) for x in (case.mixed, case.steps, case.decay)]
    kernels.replay[(NV * D // VALUES, 1, LAYERS)](
        *rows,
        case.states,
        case.places,
        case.spares,
        case.first,
        count,
        3,
        LAYERS=LAYERS,
        VALUES=VALUES,
        PDL=False,
        **HEADS,
        enable_fp_fusion=False,
    )
    tails = torch.cat((case.tails[slot, layer], case.u[:accepted]))[-(TAPS - 1) :].clone()
    kernels.shift[((CHANNELS + 127) // 128, 1, LAYERS)](
        padded(case.kept, layer), case.tails, case.slots, case.first, count, 3,
        LAYERS=LAYERS, CHANNELS=CHANNELS, TAPS=TAPS, BLOCK=128, PDL=False,
    )  # fmt: skip
    assert torch.equal(case.tails[slot, layer], tails)
    if accepted:
        assert torch.equal(case.states[spare, layer], short.states[spare, layer])
    assert torch.equal(case.states[case.places[0]], before[case.places[0]])
