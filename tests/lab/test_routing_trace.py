"""Recorded routing: what goes in comes out, a recording cut short is good up to the cut, damage is named."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import strata
from strata.lab.routing.generator import Character, Routing
from strata.lab.routing.recorder import Recorder
from strata.lab.routing.trace import Trace, TraceError, TraceWriter
from support.wrapped import wrapped

L, E, TOPK = 3, 20, 4


def some(seed: int, count: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.argsort(draw.random((count, L, E)), axis=-1)[..., :TOPK]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 3)), max_size=200))
@settings(deadline=None, max_examples=40)
def test_what_goes_in_comes_out(tmp_path_factory, shapes) -> None:
    path = tmp_path_factory.mktemp("trace") / "t"
    with TraceWriter(path, L, E, TOPK, model="none") as writer:
        for number, (rows, kept, conversation) in enumerate(shapes):
            writer.window(number, some(number, rows), conversation, min(kept, rows))
    trace = Trace(path)
    assert (trace.layers, trace.experts, trace.topk, trace.about) == (L, E, TOPK, {"model": "none"})
    found = list(trace)
    assert trace.whole
    assert [each.window for each in found] == list(range(len(shapes)))
    for (rows, kept, conversation), each in zip(shapes, found, strict=True):
        assert np.array_equal(each.rows, np.sort(some(each.window, rows), axis=-1))
        assert each.kept.tolist() == [i < kept for i in range(rows)]
        assert each.conversation.tolist() == [conversation] * rows
    pieces = [(number, len(rows)) for number, rows in trace.pieces()]
    assert pieces == [(c, min(k, r)) for r, k, c in shapes if min(k, r)]


def recording(path, windows: int = 100) -> bytes:
    with TraceWriter(path, L, E, TOPK) as writer:
        for number in range(windows):
            writer.window(number, some(number, 8))
    return path.read_bytes()


def test_a_recording_that_was_cut_is_good_up_to_the_block(tmp_path) -> None:
    path = tmp_path / "t"
    whole = recording(path)
    for length in range(80, len(whole), 37):
        path.write_bytes(whole[:length])
        trace = Trace(path)
        found = list(trace)
        assert len(found) % 32 == 0
        assert len(found) < 100
    path.write_bytes(whole)
    assert len(list(Trace(path))) == 100


def test_damage_is_named(tmp_path) -> None:
    path = tmp_path / "t"
    whole = recording(path)
    for place in range(100, len(whole), 101):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            trace = Trace(path)
            found = list(trace)
        except TraceError:
            continue
        assert len(found) < 100, "a changed length looks like a recording that was cut"


@pytest.mark.parametrize(
    "content", [b"", b"StrataRT", b"something else that is long enough", b"StrataRT\1\0\0\0\2\0\0\0[]"]
)
def test_other_files_are_refused(tmp_path, content) -> None:
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError):
        Trace(tmp_path / "t")
    with pytest.raises(TraceError, match="cannot be read"):
        Trace(tmp_path / "none")


def test_rows_that_do_not_fit_are_refused(tmp_path) -> None:
    with TraceWriter(tmp_path / "t", L, E, TOPK) as writer:
        for wrong in (some(0, 2)[:, :2], some(0, 2)[..., :3], some(0, 2) + E, some(0, 2) - E):
            with pytest.raises(TraceError, match="do not fit"):
                writer.window(0, wrong)
    with pytest.raises(TraceError, match="cannot be recorded"):
        TraceWriter(tmp_path / "none" / "t", L, E, TOPK)


def test_a_real_size_takes_about_a_byte_a_visit(tmp_path) -> None:
    rows = np.concatenate([piece for _, piece in Routing(Character()).rows(256)])
    with TraceWriter(tmp_path / "t", 48, 512, 10) as writer:
        writer.window(0, rows)
    assert (tmp_path / "t").stat().st_size / rows.size < 1.2


def test_the_hook_puts_windows_together(tmp_path) -> None:
    with TraceWriter(tmp_path / "t", L, E, TOPK) as writer:
        recorder = Recorder(writer, L)
        for number in range(3):
            rows = some(number, 2)
            for layer in range(L):
                recorder.layer(layer, rows[:, layer])
            if number == 1:
                recorder.forget()
            else:
                recorder.window(conversation=7, kept=1)
        recorder.layer(0, rows[:, 0])
        with pytest.raises(TraceError, match="layer 1 of a window was not recorded"):
            recorder.window()
    found = list(Trace(tmp_path / "t"))
    assert [each.window for each in found] == [0, 1]
    assert np.array_equal(found[1].rows, np.sort(some(2, 2), axis=-1))


def test_the_hook_on_a_network(tmp_path) -> None:
    path = tmp_path / "t"
    seen: list[np.ndarray] = []
    with strata.load() as model, torch.inference_mode():
        plain = model.network
        layers, sizes = [layer.moe for layer in plain.weights.layers], plain.config.moe
        writer = TraceWriter(path, len(layers), sizes.E, sizes.topk)
        recorder = Recorder(writer, len(layers))

        def route(real, m, w):
            found = real(m, w)
            number = next((i for i, moe in enumerate(layers) if moe is w), None)
            if number is not None:
                recorder.layer(number, found.experts.numpy())
                seen.append(found.experts.numpy().copy())
            if number == len(layers) - 1:
                recorder.window()
            return found

        state = plain.new_state()
        traced = wrapped(plain, route=route)
        traced.read(state, list(range(5, 25)))
        writer.close()
    found = list(Trace(path))
    assert sum(len(each.rows) for each in found) == 20
    assert np.array_equal(found[0].rows, np.sort(np.stack(seen[: len(layers)], axis=1), axis=-1))
