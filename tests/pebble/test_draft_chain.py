"""The draft head's chain: who sees what, and the gradient of attention with own keys."""

import pytest
import torch

from pebble.net.draft import OwnKeys, chain_attention
from pebble.net.trunk import Pebble
from pebble.shape import TINY
from support.pebble_oracle import fill

CELL = 40


def _inputs(steps, dtype):
    gen = torch.Generator().manual_seed(5)
    shapes = [(2, 2, 6, 8)] * 3 + [(steps, 2, 2, 6, 8)] * 2
    return [torch.randn(*s, dtype=dtype, generator=gen).requires_grad_() for s in shapes]


def _plain(q, k, v, own_k, own_v):
    length, scale = q.shape[2], q.shape[-1] ** -0.5
    scores = (q @ k.transpose(-1, -2) * scale).masked_fill(~torch.ones(length, length).tril().bool(), float("-inf"))
    own = (q * own_k).sum(-1) * scale
    p = torch.softmax(torch.cat([scores, own.permute(1, 2, 3, 0)], -1), -1)
    return p[..., :length] @ v + (p[..., length:].permute(3, 0, 1, 2)[..., None] * own_v).sum(0)


@pytest.mark.parametrize("steps", [1, 2])
def test_own_keys_equal_one_softmax_over_all(steps):
    inputs = _inputs(steps, torch.float64)
    ours, theirs = OwnKeys.apply(*inputs), _plain(*inputs)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-13)
    g = torch.randn(ours.shape, dtype=ours.dtype, generator=torch.Generator().manual_seed(6))
    for a, b in zip(torch.autograd.grad(ours, inputs, g), torch.autograd.grad(theirs, inputs, g), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-13)


def test_own_keys_gradient():
    assert torch.autograd.gradcheck(OwnKeys.apply, _inputs(1, torch.float64))


@pytest.fixture(scope="module")
def model():
    made = Pebble(TINY)
    fill(made)
    return made


@torch.no_grad()
def test_trunk_is_causal(model):
    ids = torch.randint(0, TINY.V, (1, 128), generator=torch.Generator().manual_seed(1))
    other = ids.clone()
    other[0, CELL + 1 :] = (other[0, CELL + 1 :] + 7) % TINY.V
    for choose in ("dense", "indexer"):
        a, b = (model(x, choose=choose).hidden for x in (ids, other))
        torch.testing.assert_close(a[: CELL + 1], b[: CELL + 1], rtol=0, atol=1e-6)
        assert (a[CELL + 1 :] - b[CELL + 1 :]).abs().max() > 1e-3


@torch.no_grad()
def test_step_j_of_a_cell_reads_j_tokens_ahead_and_no_more(model):
    ids = torch.randint(0, TINY.V, (1, 64), generator=torch.Generator().manual_seed(2))
    residual = model(ids).residual

    def hidden(tokens):
        drafts, _ = model.mtp.chain(residual, model.embed(tokens[0], torch.float32), 1, 3)
        return [d.hidden for d in drafts]

    base = hidden(ids)
    for ahead in range(1, 5):
        changed = ids.clone()
        changed[0, CELL + ahead] = (changed[0, CELL + ahead] + 3) % TINY.V
        for j, (a, b) in enumerate(zip(base, hidden(changed), strict=True), 1):
            differs = (a[CELL] - b[CELL]).abs().max() > 1e-4
            assert bool(differs) == (ahead <= j), (ahead, j)


@torch.no_grad()
def test_the_chain_equals_drafting_one_cell_by_hand(model):
    """Cells up to CELL in step 1, then one at a time with its own residual, attending to what drafting would hold."""
    ids = torch.randint(0, TINY.V, (1, 64), generator=torch.Generator().manual_seed(3))
    residual = model(ids).residual
    embedded = model.embed(ids[0], torch.float32)
    drafts, _ = model.mtp.chain(residual, embedded, 1, 3)
    from pebble.net import streams
    from pebble.net.attention import close
    from pebble.net.basics import angles
    from pebble.net.draft import enter

    head, layer = model.mtp, model.mtp.layers[0]
    cells = CELL + 1
    keys, values = [], []
    r = residual[:cells]
    place = torch.arange(cells)
    token = embedded[1 : cells + 1]
    for step in range(1, 4):
        weights = (head.pre_fc_norm_embedding.weight, head.pre_fc_norm_hidden.weight)
        x = enter(token, r, *weights, head.fc_embedding.weight, head.fc_hidden.weight, TINY.eps)
        m, share = streams.read(x, *layer.attn_hyper_connection.weights(), TINY.eps)
        q, k, v, gate = layer.self_attn.qkv(m, *angles(TINY, place))
        keys.append(k)
        values.append(v)
        all_k, all_v = torch.cat(keys), torch.cat(values)
        repeat = TINY.nh // TINY.nkv
        s = torch.einsum("hd,khd->hk", q[-1], all_k.repeat_interleave(repeat, 1)) * TINY.hd**-0.5
        o = torch.einsum("hk,khd->hd", s.softmax(-1), all_v.repeat_interleave(repeat, 1))[None]
        last = head._leave(x[-1:], close(o, gate[-1:], layer.self_attn.o_proj.weight), share[-1:])
        torch.testing.assert_close(last.hidden[0], drafts[step - 1].hidden[CELL], rtol=1e-4, atol=1e-5)
        r, place, token = last.residual, torch.tensor([CELL + step]), embedded[CELL + step + 1][None]


def test_one_step_is_plain_causal_attention():
    gen = torch.Generator().manual_seed(8)
    q, k, v = (
        torch.randn(10, 2, 8, generator=gen),
        torch.randn(10, 1, 8, generator=gen),
        torch.randn(10, 1, 8, generator=gen),
    )
    o = chain_attention(q, [k], [v], 2)
    s = (q.view(2, 5, 2, 8).transpose(1, 2) @ k.view(2, 1, 5, 8).transpose(-1, -2)) * 8**-0.5
    p = s.masked_fill(~torch.ones(5, 5).tril().bool(), float("-inf")).softmax(-1)
    torch.testing.assert_close(o, (p @ v.view(2, 1, 5, 8)).transpose(1, 2).reshape(10, 2, 8))
