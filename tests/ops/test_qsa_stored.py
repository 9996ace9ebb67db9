"""Attention over stored keys and values: every type, path and length against float64 over what the bytes say (O12)."""

import numpy as np
import pytest
import torch

from strata.loading.cache import cached_as
from strata.model.kv import TYPES
from strata.model.ops import QsaInputs
from strata.model.rows import Rows
from strata.model.state import State
from strata.ops import conversation
from strata.ops.cpu import CpuOps
from strata.ops.qsa import kernel, select, stored
from support.kv import U, slow_decode, slow_turn
from support.network import network

LENGTHS = [3, 16, 19, 20, 90, 300]  # the budget is 16 tokens: all is seen up to 19
PATHS = {"prompt": [None], "two passes": [7, None], "verify": [None, 5], "decode": [None, 1], "8 rows": [None, 8]}


def inputs(n: int) -> QsaInputs:
    """Rows of n tokens: normal numbers, keys with an outlier in one dimension, values of very different size."""
    rng, q = np.random.default_rng(n), network("base").config.qsa

    def normal(*shape: int) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal((n, *shape)).astype(np.float32))

    k, v = normal(q.nkv, q.hd), normal(q.nkv, q.hd) * 10.0 ** torch.arange(-2, q.nkv - 2)[:, None]
    k[..., 5] *= 20
    return QsaInputs(normal(q.nh, q.hd), normal(q.nh, q.hd), k, v, normal(q.ih, q.id), normal(q.id))


def sizes(n: int, path: str) -> list[int]:
    """Rows of each pass; the last one or ones as the path says, and what is left before them."""
    last = [size for size in PATHS[path] if size is not None]
    if path == "two passes":
        return [size for size in (min(7, n), n - min(7, n)) if size]
    left = max(n - sum(last), 0)
    return [size for size in (left, n - left) if size]


def run(name: str, x: QsaInputs, cut: list[int], *, sparse: bool):
    """Output [n, nh, hd] of passes of so many rows, and the memory they leave."""
    config = cached_as(network("base").config, name)
    ops, memory, positions = CpuOps(config), State.empty(config).layers[3], Rows((3,), torch.int64)
    outputs, at = [], 0
    for size in cut:
        own = x.part(slice(at, at + size))
        positions.write(torch.arange(at, at + size)[:, None].repeat(1, 3))
        k, v, blocks = conversation.extend(
            memory, positions, (own.k, own.v, own.ik), 4, lambda raw, _: raw.unflatten(0, (-1, 4)).mean(1)
        )
        outputs.append(ops.attend(own, k, v, blocks, sparse=sparse, codec=memory.k.codec))
        memory.commit(size, 4)
        positions.commit(size)
        at += size
    return torch.cat(outputs), memory


def oracle(name: str, x: QsaInputs, memory, *, sparse: bool):
    """Float64 attention over the dequantised rows, and a bound on what float32 may add."""
    n, group, width = len(x.q), x.q.shape[1] // x.k.shape[1], x.q.shape[2]
    (k, dk), (v, dv) = (slow_decode(name, rows.upto(n)) for rows in (memory.k, memory.v))  # as they are stored
    plain_k, plain_v = slow_turn(name, k)[0], slow_turn(name, v)[0]
    plain_q = x.q.double().numpy()
    q, dq = slow_turn(name, plain_q)
    scale, out, bound = width**-0.5, np.zeros(q.shape), np.zeros(q.shape)
    for t in range(n):
        complete = (t + 1) // 4
        blocks = 4 if sparse else complete
        seen = select.select(x.iq[t : t + 1], memory.blocks.upto(complete), t, blocks, 4)[0].numpy().nonzero()[0]
        for h in range(q.shape[1]):
            g = h // group
            logits = plain_k[seen, g] @ plain_q[t, h] * scale
            p = np.exp(logits - logits.max())
            p /= p.sum()
            out[t, h] = p @ plain_v[seen, g]
            # What keys and query bring; product and scale once each, the difference from the largest once.
            moved = dk[seen, g] @ np.abs(q[t, h]) + dq[t, h] * np.abs(k[seen, g]).sum(-1)
            moved = scale * moved + 4 * U * np.abs(logits).max()
            # A relative error of each weight, twice it in their quotient; the exponential is within an ulp.
            relative = 2 * (np.expm1(2 * moved.max()) + 4 * U)
            stored_out = p @ v[seen, g]
            off = relative * p @ np.abs(v[seen, g]) + p @ dv[seen, g] + U * np.abs(stored_out)
            bound[t, h] = off if name != "q4" else off.sum() / np.sqrt(width) + slow_turn(name, stored_out)[1]
    return out, bound


@pytest.mark.parametrize("sparse", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", TYPES)
def test_every_path_is_attention_over_the_stored_rows(name, n, sparse) -> None:
    x, found = inputs(n), {}
    for path in PATHS:
        found[path], memory = run(name, x, sizes(n, path), sparse=sparse)
    expected, bound = oracle(name, x, memory, sparse=sparse)
    assert (np.abs(found["prompt"].double().numpy() - expected) <= bound).all()
    for path, got in found.items():
        assert torch.equal(got, found["prompt"]), path
    token_by_token, again = run(name, x, [1] * n, sparse=sparse)
    assert torch.equal(token_by_token, found["prompt"])
    assert torch.equal(again.k.upto(n), memory.k.upto(n))


def test_the_bound_is_small_and_the_type_shows() -> None:
    x = inputs(90)
    exact, memory = run("f32", x, [90], sparse=True)
    expected, bound = oracle("f32", x, memory, sparse=True)
    assert bound.max() < 1e-3 * np.abs(expected).max()
    errors = {name: float((run(name, x, [90], sparse=True)[0] - exact).abs().max()) for name in TYPES}
    assert errors["f32"] == 0 < errors["f16"] < errors["q8"] < errors["q4"]


def test_the_selection_does_not_depend_on_the_type() -> None:
    x = inputs(90)
    memories = [run(name, x, [90], sparse=True)[1] for name in TYPES]
    for memory in memories[1:]:
        assert torch.equal(memory.blocks.upto(22), memories[0].blocks.upto(22))
        assert torch.equal(memory.ik.upto(90), memories[0].ik.upto(90))


def test_only_what_was_chosen_is_read_in_a_window() -> None:
    """Far above the budget a row decodes the tokens it attends, not the table."""
    x, decoded = inputs(300), []
    _, memory = run("q8", x, [300], sparse=True)
    how = memory.k.codec
    spy = replace_decode(how, decoded)
    got = stored.attend(x.q[-1:], x.iq[-1:], memory.k.upto(300), memory.v.upto(300), memory.blocks.upto(75), 4, 4, spy)
    assert decoded == [16, 16]
    k, v = (how.decode(rows.upto(300)) for rows in (memory.k, memory.v))
    everything = kernel.attend(x.q[-1:], x.iq[-1:], k, v, memory.blocks.upto(75), 4, 4)
    assert torch.equal(got, everything)


def replace_decode(how, decoded: list[int]):
    """The codec, noting how many rows it decodes."""

    class Spy:
        dtype, stored, encode, turn = how.dtype, how.stored, how.encode, how.turn

        def decode(self, rows):
            decoded.append(len(rows))
            return how.decode(rows)

    return Spy()
