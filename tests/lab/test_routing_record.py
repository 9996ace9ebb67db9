"""What a real network visits in texts of one's own: recorded as its routers chose it, and compared by the command."""

from collections import defaultdict

import numpy as np
import pytest
import torch

import strata
from strata.engine import Drafting, Sampling, generate
from strata.errors import StrataError
from strata.lab.routing.__main__ import main
from strata.lab.routing.listening import listening
from strata.lab.routing.record import PROMPT, record
from strata.lab.routing.recorder import Recorder
from strata.lab.routing.trace import Trace, TraceWriter
from support.wrapped import wrapped

TEXT = "Count from 1 to 20. one two three four five six seven eight nine ten. " * 6


@pytest.fixture(scope="module")
def model():
    with strata.load(threads=1) as loaded:
        yield loaded


def truth(network):
    """The network, and every row its routers choose for, call by call."""
    calls = []

    def route(real, m, w):
        found = real(m, w)
        calls.append(found.experts.numpy().copy())
        return found

    return wrapped(network, route=route), calls


def test_a_texts_own_tokens_are_recorded_window_by_window(model, tmp_path) -> None:
    file, out = tmp_path / "a.txt", tmp_path / "trace"
    file.write_text(TEXT)
    ids = model.tokenize(TEXT)[: 2 * PROMPT - 2]
    assert record(model, [file, file], out, rows=4, most=2 * PROMPT - 2) == 32
    trace = Trace(out)
    found = list(trace)
    assert trace.whole
    assert trace.about["texts"] == ["a.txt", "a.txt"]
    assert [len(each.rows) for each in found] == ([4] * 15 + [3]) * 2
    assert all(each.kept.all() for each in found)
    assert [set(each.conversation.tolist()) for each in found] == [{0}] * 16 + [{1}] * 16
    for first, second in zip(found[:16], found[16:], strict=True):
        assert np.array_equal(first.rows, second.rows)

    network, calls = truth(model.network)
    with torch.inference_mode():
        state = network.new_state()
        network.read(state, ids[: PROMPT - 1])
        calls.clear()
        for token in ids[PROMPT - 1 :]:
            network.commit(state, network.window([(state, [token])])[0], 1)
    alone = np.concatenate(calls).reshape(
        len(ids) - PROMPT + 1, len(network.weights.layers), -1
    )  # a row's choice depends on no company
    assert np.array_equal(np.concatenate([each.rows for each in found[:16]]), np.sort(alone, axis=-1))


def test_an_answer_is_recorded_with_the_rows_that_were_refused(model, tmp_path) -> None:
    """Drafts, two conversations at once, and a window that is given up."""
    network = model.network
    layers, moe = len(network.weights.layers), network.config.moe
    with TraceWriter(tmp_path / "t", layers, moe.E, moe.topk) as writer, torch.inference_mode():
        heard, listener = listening(network, Recorder(writer, layers))
        ids, state = model.tokenize(TEXT), heard.new_state()
        given = Drafting(4, lookup=False, head=True)
        tokens = list(generate(heard, state, ids, Sampling(), max_tokens=12, drafting=given))
        plain = list(generate(network, network.new_state(), ids, Sampling(), max_tokens=12))
        assert [e.id for e in tokens[:-1]] == [e.id for e in plain[:-1]]
        one, two = heard.new_state(), heard.new_state()
        done = heard.window([(one, [3, 4]), (two, [5, 6, 7])])
        heard.commit(two, done[1], 2)
        heard.commit(one, done[0], 0)
        heard.window([(one, [8])])  # nobody commits it
        listener.flush()
    found = list(Trace(tmp_path / "t"))
    last = found.pop()
    assert last.conversation.tolist() == [1, 1, 2, 2, 2]
    assert last.kept.tolist() == [False, False, True, True, False]
    kept = defaultdict(int)
    for each in found:
        kept[int(each.conversation[0])] += int(each.kept.sum())
        assert each.kept.tolist() == sorted(each.kept.tolist(), reverse=True)
    assert dict(kept) == {0: 11}  # the first token comes with the prompt
    assert any(len(each.kept) > 1 for each in found)
    assert any(not each.kept.all() for each in found)


def test_the_command_records_and_compares(tmp_path, capsys) -> None:
    text, out = tmp_path / "t.txt", tmp_path / "trace"
    text.write_text(TEXT)
    assert main(["record", "--text", str(text), str(text), "--out", str(out), "--most", "96", "--device", "cpu"]) == 0
    assert "windows on cpu" in capsys.readouterr().out
    assert main(["record", "--text", str(text), "--out", str(out), "--answer", "5", "--device", "cpu"]) == 0
    assert sum(int(each.kept.sum()) for each in Trace(out)) == 4
    assert main(["compare", "--trace", str(out), "--sizes", "50"]) == 0
    assert "counted" in capsys.readouterr().out


def test_what_cannot_be_recorded_is_said(model, tmp_path, capsys) -> None:
    (tmp_path / "short").write_text("")
    (tmp_path / "odd").write_bytes(b"\xff\xfe")
    for name, words in (("short", "no two tokens"), ("odd", "not UTF-8"), ("none", "cannot be read")):
        with pytest.raises(StrataError, match=words):
            record(model, [tmp_path / name], tmp_path / "out")
    for arguments in ([], ["--text", "x", "--out", "y", "--window", "9"], ["--text", "x", "--out", "y", "--vram", "z"]):
        assert main(["record", *arguments]) == 1
    assert "--vram must be a number of bytes" in capsys.readouterr().err
