"""The chunked delta rule's kernels against the recurrence in float64."""

import pytest
import torch

pytest.importorskip("triton")

from strata.ops.elementwise.reference import sigmoid, silu, softplus
from strata.ops.gdn.project import convolve, unit
from strata.ops.gdn.recurrent import recurrent
from strata.ops.norm.reference import rms
from support.launch import Kernels

NK, NV, D, TAPS, LAYERS, SLOTS, PLACES, CHUNK = 2, 4, 32, 4, 2, 3, 4, 64
CHANNELS = (2 * NK + NV) * D
WIDTH = CHANNELS + NV * D + 2 * NV
EPS = 1e-6
HEADS = {"NK": NK, "NV": NV, "D": D}


def _int(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


class Case:
    """Rows behind a conversation of so many tokens."""

    def __init__(self, rows: int, before: int, room: int | None = None) -> None:
        random = torch.Generator().manual_seed(rows)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random)

        self.rows, self.before, self.room = rows, before, room or rows
        self.tails, self.states = normal(SLOTS, LAYERS, TAPS - 1, CHANNELS), normal(PLACES, LAYERS, NV, D, D)
        self.taps, self.a, self.dt, self.norm = normal(CHANNELS, TAPS), -normal(NV).exp(), normal(NV), normal(D)
        self.x = torch.full((self.room, WIDTH), torch.nan)
        self.x[:rows] = normal(200, WIDTH)[:rows]
        self.gates = self.x[:, CHANNELS + NV * D :]
        self.after = torch.full((LAYERS, TAPS - 1, CHANNELS), torch.nan)
        self.gated = torch.full((self.room, NV * D), torch.nan, dtype=torch.float16)

    def run(self, layer: int, rows: int | None = None, before: int | None = None) -> None:
        heads, delta = Kernels("strata.ops.prompt.heads"), Kernels("strata.ops.prompt.delta")
        counts, lengths = _int(rows or self.rows), _int(self.before if before is None else before)
        chunks = self.room // CHUNK + 2
        mixed = torch.full((self.room, CHANNELS), torch.nan, dtype=torch.float16)
        decay, strength = torch.full((2, self.room, NV), torch.nan)
        solved, seen = torch.full((2, chunks, NV, CHUNK, CHUNK), torch.nan, dtype=torch.float16)
        system = torch.full((chunks, NV, CHUNK, CHUNK), torch.nan)
        since, until = torch.full((2, chunks, NV, CHUNK), torch.nan)
        out = torch.full((self.room, NV * D), torch.nan)
        tile = 64
        heads.convolve[(-(-self.room // tile), 2 * NK + NV)](
            self.x, WIDTH, self.x.flatten()[CHANNELS + NV * D :], self.tails, _int(1), counts, self.taps, self.a,
            self.dt, mixed, decay, strength, layer, LAYERS=LAYERS, TAPS=TAPS, ROWS=tile, **HEADS,
        )  # fmt: skip
        delta.pairs[(chunks, NV)](mixed, decay, strength, lengths, counts, system, solved, seen, since, until, **HEADS)
        delta.scan[(NV, 1)](
            mixed, strength, solved, seen, since, until, self.states, _int(2), _int(0), lengths, counts, out, layer,
            LAYERS=LAYERS, VALUES=D, **HEADS,
        )  # fmt: skip
        z = self.x[:, CHANNELS : CHANNELS + NV * D]
        heads.gate[(-(-self.room // tile), NV)](
            out, z.contiguous(), NV * D, self.norm, EPS, counts, self.gated, NV=NV, D=D, ROWS=tile
        )
        heads.tail[(1,)](
            self.x, WIDTH, self.tails, _int(1), counts, self.after, layer, LAYERS=LAYERS, CHANNELS=CHANNELS, TAPS=TAPS,
            BLOCK=256,
        )  # fmt: skip

    def expected(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        u, z, alpha, beta = self.x[: self.rows].double().split((CHANNELS, NV * D, NV, NV), 1)
        mixed = silu(convolve(torch.cat((self.tails[1, layer].double(), u)), self.taps.double()))
        q, k, v = mixed.split((NK * D, NK * D, NV * D), -1)
        o, state = recurrent(
            unit(q.unflatten(-1, (NK, D))) * D**-0.5, unit(k.unflatten(-1, (NK, D))), v.unflatten(-1, (NV, D)),
            sigmoid(beta), self.a.double() * softplus(alpha + self.dt.double()), self.states[2, layer].double(),
        )  # fmt: skip
        return (rms(o, self.norm.double(), EPS) * sigmoid(z.unflatten(-1, (NV, D)))).flatten(1), state


@pytest.mark.parametrize(("rows", "before"), [(1, 0), (5, 62), (64, 0), (100, 30)])
def test_rows_and_the_state_behind_them(rows, before):
    case, layer = Case(rows, before), 1
    kept = case.states.clone()
    case.run(layer)
    gated, state = case.expected(layer)
    # Operands of 11 bits: 2^-11 of numbers below 8, through norms that divide by about one.
    torch.testing.assert_close(case.states[0, layer].double(), state, rtol=0, atol=16 * 2.0**-11)
    torch.testing.assert_close(case.gated.double(), gated, rtol=0, atol=32 * 2.0**-11)
    assert torch.equal(case.states[1:], kept[1:])
    assert torch.equal(case.after[layer], torch.cat((case.tails[1, layer], case.x[:, :CHANNELS]))[-(TAPS - 1) :])


def test_tokens_that_are_all_alike():
    """One key over and over, at full strength and hardly any decay: powers of the pairs' matrix would overflow."""
    case = Case(70, 0)
    case.x[:] = case.x[0]
    case.gates[:, NV:] = 8.0
    case.gates[:, :NV] = -12.0
    case.run(0)
    gated, state = case.expected(0)
    torch.testing.assert_close(case.states[0, 0].double(), state, rtol=0, atol=16 * 2.0**-11)
    torch.testing.assert_close(case.gated.double(), gated, rtol=0, atol=32 * 2.0**-11)


def test_a_token_that_forgets_everything():
    case = Case(70, 0)
    case.a[:] = -1.0
    case.gates[20, :NV] = 1e4
    case.run(0)
    gated, state = case.expected(0)
    torch.testing.assert_close(case.states[0, 0].double(), state, rtol=0, atol=16 * 2.0**-11)
    torch.testing.assert_close(case.gated.double(), gated, rtol=0, atol=32 * 2.0**-11)


def test_cuts_at_multiples_of_a_chunk_cannot_be_seen():
    whole, first = Case(150, 10), Case(150, 10)
    whole.run(0)
    first.run(0, rows=54)
    second = Case(150, 64)
    second.states[2], second.tails[1, 0] = first.states[0], first.after[0]
    second.x[:96] = first.x[54:].clone()
    second.run(0, rows=96)
    assert torch.equal(
        torch.cat((first.gated[:54], second.gated[:96])).view(torch.int16), whole.gated.view(torch.int16)
    )
    assert torch.equal(second.states[0, 0], whole.states[0, 0])
    assert torch.equal(second.after[0], whole.after[0])
