"""Types of the attention cache: what is stored, what reads back, and that no path forgets it (case O12)."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from strata.errors import RequestError
from strata.loading.cache import cached_as, check_kv
from strata.model.kv import TYPES, codec, token_bytes
from strata.model.rows import Rows
from strata.model.snapshot import SnapshotError, assemble, checkpoint, cut
from strata.session.fileformat import DTYPES
from strata.session.fingerprint import fingerprint
from support.kv import U, hadamard, slow_decode, slow_turn
from support.network import network, prompt
from support.states import differing

SMALLER = TYPES[1:]


def heads(seed: int, n: int, width: int, nkv: int = 2) -> torch.Tensor:
    """Normal numbers with an outlier in each head, heads of very different size, a zero head."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, nkv, width)) * 10.0 ** rng.integers(-3, 3, (n, nkv, 1))
    x[..., rng.integers(width)] *= 30
    x[n // 2, 0] = 0
    return torch.from_numpy(x.astype(np.float32))


@pytest.mark.parametrize("width", [32, 64, 128, 256])
@pytest.mark.parametrize("name", SMALLER)
def test_what_reads_back_is_what_the_bytes_say_and_near_what_was_written(name, width) -> None:
    how, x = codec(name), heads(1, 40, width)
    stored = how.encode(x)
    assert (tuple(stored.shape[1:]), stored.dtype) == (how.stored(2, width), how.dtype)
    turned, rounding = slow_decode(name, stored)
    back = how.decode(stored)
    assert back.dtype == torch.float32
    assert (np.abs(back.numpy() - turned) <= rounding).all()
    (values, turning), back = slow_turn(name, back.double().numpy()), how.turn(back)
    assert (np.abs(back.numpy() - values) <= turning).all()
    exact = x.double().numpy()
    if name == "f16":
        assert torch.equal(stored, x.half())
        return
    blocks = exact.reshape(40, 2, -1, 32)
    if name == "q8":  # half a step of max / 127, and roundings of scale and factor
        step = np.abs(blocks).max(-1, keepdims=True) / 127
        error = np.abs(values.reshape(blocks.shape) - blocks)
        assert (error <= step * (0.5 + 127 * 4 * U)).all()
        return
    turned = (exact @ hadamard(width) / np.sqrt(width)).reshape(blocks.shape)
    again = (values @ hadamard(width) / np.sqrt(width)).reshape(blocks.shape)
    step = np.abs(turned).max(-1, keepdims=True) / 7
    # Half a step; a scale rounded down to a float16 (2^-11, or half of the smallest step) clamps the largest code.
    assert (np.abs(again - turned) <= step * (0.5 + 7 * 2**-11 + 1e-4) + 7 * 2.0**-25).all()


def test_the_scales_are_those_of_the_documents() -> None:
    x = heads(2, 9, 64)
    a = x.unflatten(-1, (2, 32)).abs().amax(-1).numpy()
    q8, q4 = (codec(name).encode(x).numpy() for name in ("q8", "q4"))
    assert np.array_equal(np.ascontiguousarray(q8[..., :4]).view("<f4")[..., 0], a / np.float32(127))
    turned = (x.double().numpy() @ hadamard(64) / 8).reshape(9, 2, 2, 32)
    scale = np.ascontiguousarray(q4[..., :2]).view("<f2")[..., 0].astype(np.float64)
    assert np.allclose(scale, np.abs(turned).max(-1) / 7, rtol=2**-10, atol=2**-24)
    tiny = codec("q8").encode(torch.full((1, 1, 32), 2.0**-101))
    assert not tiny.any(), "below 2^-100 a block is zero"


@pytest.mark.parametrize("name", SMALLER)
@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(1, 36), max_size=4, unique=True).map(sorted), st.integers(0, 99))
def test_the_bytes_of_a_row_do_not_depend_on_the_others(name, cuts, seed) -> None:
    how, x = codec(name), heads(seed, 37, 64)
    parts = [how.encode(x[a:b]) for a, b in zip([0, *cuts], [*cuts, 37], strict=True)]
    assert torch.equal(torch.cat(parts), how.encode(x))
    stored = how.encode(x)
    chosen = torch.tensor([3, 5, 36])
    assert torch.equal(how.decode(stored[chosen]), how.decode(stored)[chosen])


@pytest.mark.parametrize("name", SMALLER)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_reads_back_so_and_is_not_kept(name, bad) -> None:  # case P02
    net = of(name)
    with torch.inference_mode():
        state = net.new_state()
        net.read(state, prompt("base", 9))
        memory = state.layers[3]
        values = memory.v.codec.turn(memory.v.decode(memory.v.upto(9))).clone()
        values[4, 1, 7] = bad
        memory.v.upto(9)[:] = memory.v.encode(values)
        back = memory.v.decode(memory.v.upto(9))
        assert not bool(torch.isfinite(back[4, 1]).all())
        assert bool(torch.isfinite(back[4, 0]).all())
        with pytest.raises(SnapshotError, match=r"layer\.3\.v of a state of 9 tokens is not finite"):
            cut(state, 0, 9, 4)


def of(name: str, *, drafts: bool = False):
    """The tiny network with a type; budget 16."""
    net = network("base", drafts=drafts)
    config = cached_as(net.config, name)
    return replace(net, config=config, ops=type(net.ops)(config))


@pytest.mark.parametrize("name", SMALLER)
@settings(deadline=None, max_examples=3)
@given(cuts=st.sets(st.integers(1, 59), max_size=3), windows=st.lists(st.integers(1, 8), min_size=20, max_size=20))
def test_read_and_written_leave_the_same_bytes(name, cuts, windows) -> None:
    """A prompt with any cuts, and windows of any size of which only some rows are accepted."""
    net, ids = of(name, drafts=True), prompt("base", 60)
    with torch.inference_mode():
        read, written = net.new_state(), net.new_state()
        residual = [net.read(read, ids[a:b]) for a, b in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True)]
        rows, at = [net.read(written, ids[:1])], 1
        for size in windows:
            good = ids[at : at + (size + 1) // 2]
            wrong = [(i + 1) % 512 for i in ids[at + len(good) : at + size]]
            if not good:
                break
            done = net.window([(written, [*good, *wrong])])[0]
            net.commit(written, done, len(good))
            rows.append(done.residual[: len(good)])
            at += len(good)
        if at < 60:
            rows.append(net.read(written, ids[at:]))
        net.settle(written)
        assert torch.equal(torch.cat(residual), torch.cat(rows))
        assert differing(read, written) == []


@pytest.mark.parametrize("name", TYPES)
def test_a_restored_conversation_goes_on_with_the_same_bytes(name) -> None:  # case K01
    net, ids = of(name, drafts=True), prompt("base", 90)
    with torch.inference_mode():
        state = net.new_state()
        net.read(state, ids[:70])
        spans = [cut(state, a, b, 4) for a, b in ((0, 13), (13, 64), (64, 70))]
        end = checkpoint(state)
        again = assemble(net.config, spans, end, drafts=True)
        assert differing(state, again) == []
        assert torch.equal(net.read(state, ids[70:]), net.read(again, ids[70:]))
        for ours, theirs in zip(net.draft(state, 5, 3), net.draft(again, 5, 3), strict=True):
            assert torch.equal(ours, theirs)
        for other in set(TYPES) - {name}:
            with pytest.raises(SnapshotError, match=r"\.[kv] is torch"):
                assemble(of(other).config, spans, end, drafts=True)
    assert {str(t.dtype).removeprefix("torch.") for span in spans for t in span.tables.values()} <= DTYPES.keys()


@pytest.mark.parametrize("name", TYPES)
def test_budgets_count_the_bytes_there_are(name) -> None:
    net = of(name, drafts=True)
    with torch.inference_mode():
        state = net.new_state()
        net.read(state, prompt("base", 61))
        span = cut(state, 0, 61, 4)
        assert abs(span.bytes - 61 * token_bytes(net.config)) < 2 * token_bytes(
            net.config
        )  # the last cell, open blocks
        assert span.bytes == sum(t.numel() * t.element_size() for t in span.tables.values())


def test_the_real_model_takes_what_the_documents_say() -> None:
    c = network("base").config
    real = replace(c, mixers=c.mixers[:4] * 12, qsa=replace(c.qsa, nkv=2, hd=256, id=128), mtp=False)
    assert [round(token_bytes(cached_as(real, name)) - 24) for name in TYPES] == [56832, 32256, 21504, 14592]


def test_each_type_has_another_fingerprint() -> None:
    assert len({fingerprint(of(name)) for name in TYPES}) == len(TYPES)


def test_other_types_and_heads_that_do_not_fit_are_refused() -> None:
    c = network("base").config
    for name in ("fp16", "q4_0", "F16", ""):
        with pytest.raises(RequestError, match=r"f32, f16, q8 or q4, not .*the indexer's keys are always float32"):
            cached_as(c, name)
    for name, width, reason in (
        ("q8", 80, "multiple of 32 numbers, not 80; use f16"),
        ("q4", 48, "multiple of 32 numbers, not 48"),
        ("q4", 96, "must be a power of two, not 96; use f16 or q8"),
    ):
        with pytest.raises(RequestError, match=reason):
            cached_as(replace(c, qsa=replace(c.qsa, hd=width)), name)
    with pytest.raises(RequestError, match="must be a text"):
        check_kv(8)


def test_a_clone_stores_as_its_original() -> None:
    how = codec("q8")
    rows = Rows(how.stored(2, 64), how.dtype, how)
    rows.write(rows.encode(heads(3, 5, 64)))
    rows.commit(5)
    other = rows.clone()
    assert torch.equal(other.decode(other.upto(5)), rows.decode(rows.upto(5)))
    assert other.codec is how
