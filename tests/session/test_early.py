"""States that are filled while their files are read: with nothing that has not come, and nothing that is damaged."""

import threading

import pytest
import torch

pytest.importorskip("triton")

from strata.errors import StrataError
from strata.model import snapshot
from strata.model.snapshot import Checkpoint, Span
from strata.ops.gpu import parts as gpu_parts
from strata.session import checksum, early, reading
from strata.session.fileformat import Coming, Header, describe, write
from strata.session.folder import Folder
from strata.session.reading import Hands
from strata.session.store import Store
from support.network import network, prompt
from support.pooled import pooled
from support.states import differing

PRINT = "a" * 32
PIECE = 8192
LONG = 20.0
"""Seconds that only what is broken takes."""


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(checksum, "PIECE", PIECE)
    monkeypatch.setattr(reading, "REQUEST", 4096)
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def text():
    return prompt("base", 150)


def read(net, text):
    """A settled state of a text."""
    state = net.new_state()
    with torch.inference_mode():
        net.read(state, list(text))
        net.settle(state)
    return state


def same(one, other) -> bool:
    """Two states of whatever device."""
    (a, b) = ((snapshot.cut(x, 0, x.length, 4).tables, snapshot.checkpoint(x).tensors) for x in (one, other))
    return all(x.keys() == y.keys() and all(torch.equal(x[n], y[n]) for n in x) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("staging", [1, 40_000, 64 << 20])
@pytest.mark.parametrize("kind", ["cpu", "pool"])
def test_nothing_is_looked_at_before_it_is_there(monkeypatch, text, kind, staging) -> None:
    """What has not come is nonsense; each table comes when it is asked for, those of two spans together."""
    monkeypatch.setattr(gpu_parts, "STAGING", staging)
    plain = network("base")
    net = plain if kind == "cpu" else pooled(plain, slots=4, cells=1024)
    state, ratio = read(net, text), net.config.qsa.ratio
    spans = [snapshot.cut(state, *range_, ratio) for range_ in ((0, 70), (70, len(text)))]
    end, came, most = snapshot.checkpoint(state), list[str](), 0
    told = [[(n, t.clone()) for n, t in one.items()] for one in (*(span.tables for span in spans), end.tensors)]
    for table in (*(t for span in spans for t in span.tables.values()), *end.tensors.values()):
        table.view(torch.uint8).fill_(0x7F) if table.numel() else None

    def arrived(names) -> None:
        nonlocal most
        for one, given in zip((*(span.tables for span in spans), end.tensors), told, strict=True):
            for name, value in given:
                if name in names:
                    one[name].copy_(value)
        came.extend(names)
        most = max(most, sum(name in spans[0].tables for name in names))

    found = net.new_state()
    snapshot.fill(found, spans, end, ratio, arrived)
    assert same(found, state)
    assert (most > 1) == (kind == "pool" and staging > 1), "one table at a time, or as many as travel at once"
    rows = [name for name in came if name in spans[0].tables]
    assert rows == list(spans[0].tables), "in the order in which a file has them"
    assert came.index(rows[0]) >= len(end.tensors), "behind what exists once"


def test_a_tensor_is_there_before_those_behind_it(tmp_path, monkeypatch) -> None:
    tensors = {
        name: torch.randn(PIECE - 100, generator=torch.Generator().manual_seed(i)) for i, name in enumerate("abc")
    }
    header = Header(PRINT, "rows", "", (1, 2), 0, 4, marked=False, tensors=describe(tensors))
    with (tmp_path / "file").open("wb") as out:
        write(out, header, tensors)
    unpack, open_ = reading.unpack, threading.Event()
    behind = -(-tensors["a"].nbytes // 64) * 64 + tensors["b"].nbytes
    assert behind % PIECE, "other pieces hold the end of it than all that it fills"

    def late(piece, *rest) -> None:
        if piece.first < behind <= piece.first + piece.size:
            assert open_.wait(LONG)
        unpack(piece, *rest)

    monkeypatch.setattr(reading, "unpack", late)
    hands = Hands()
    coming = Coming(tmp_path / "file", snapshot.PLAIN, hands)
    coming.wait(["a", "no such"])
    assert torch.equal(coming.promised()["a"], tensors["a"])
    waiting = threading.Thread(target=coming.wait, args=(["b"],))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    open_.set()
    waiting.join(LONG)
    assert torch.equal(coming.promised()["b"], tensors["b"])
    found = coming.tensors()
    assert all(torch.equal(found[name], tensors[name]) for name in tensors)
    hands.close()


def stored(folder, net, text, state, ends=()) -> None:
    """Files of a state; of its rows as many as there are boundaries."""
    store = opened(folder, net)
    for end in ends:
        store.release(store.keep("", text[:end], read(net, text[:end]))[0])
    store.release(store.keep("", text, state)[0])
    store.close()


def opened(folder, net, **more) -> Store:
    return Store(
        net.config, drafts=False, ram=1 << 30, step=16, folder=Folder(folder, PRINT, reserve=0), disk=1 << 30,
        new_state=net.new_state, **more,
    )  # fmt: skip


@pytest.mark.parametrize("ends", [(), (70,)])
@pytest.mark.parametrize("kind", ["cpu", "pool"])
def test_a_state_is_filled_while_its_files_are_read(tmp_path, monkeypatch, text, kind, ends) -> None:
    """The last piece of the last rows does not come before some rows have been asked for, and are there."""
    plain = network("base")
    net = plain if kind == "cpu" else pooled(plain, slots=4, cells=1024)
    state = read(net, text)
    stored(tmp_path, net, text, state, ends)
    store = opened(tmp_path, net)
    unpack, wait, asked, begun = reading.unpack, Coming.wait, threading.Event(), list[str]()
    (last,) = [node.rows.file.bytes for node in store._tree if node.end == len(text)]

    def late(piece, *rest) -> None:
        if piece.place + piece.stored == last:
            assert asked.wait(LONG), "nothing was done with what came before"
        unpack(piece, *rest)

    def waited(coming, names) -> None:
        wait(coming, names)
        if coming.header.kind == "rows" and {*names} & {name for name, _, _ in coming.header.tensors}:
            asked.set()

    def beginning(file, memory):
        begun.append(file.header.kind)
        return Folder.begin(store._folder, file, memory)

    monkeypatch.setattr(reading, "unpack", late)
    monkeypatch.setattr(Coming, "wait", waited)
    monkeypatch.setattr(store._folder, "begin", beginning)
    back = store.restore("", [*text, 5])
    assert back is not None
    assert same(back[0], state)
    assert begun == ["checkpoint", *["rows"] * (len(ends) + 1)], "what is put first is read first"
    assert store.counts.restored == len(begun)
    store.release(back[1])
    again = store.restore("", [*text, 5])  # from memory now
    assert again is not None
    assert same(again[0], state)
    store.release(again[1])
    store.close()


@pytest.mark.parametrize("where", ["first", "last"])
@pytest.mark.parametrize("kind", ["rows", "checkpoint"])
@pytest.mark.parametrize("device", ["cpu", "pool"])
def test_what_was_filled_with_damaged_files_is_not_used(tmp_path, text, caplog, device, kind, where) -> None:
    plain = network("base")
    net = plain if device == "cpu" else pooled(plain, slots=2, cells=512)
    stored(tmp_path, net, text, read(net, text))
    store = opened(tmp_path, net)
    (node,) = store._tree
    file = (node.rows if kind == "rows" else node.checkpoint).file
    data = bytearray(file.path.read_bytes())
    data[-1 if where == "last" else -(-len(data) // 4096) * 4096 - file.bytes + 4096 * 2] ^= 1
    file.path.write_bytes(data)
    assert store.restore("", [*text, 5]) is None
    assert "not used, and given up: its checksum does not fit" in caplog.text
    assert (store.counts.refused, store.counts.hits) == (1, 0)
    for _ in range(3):  # no place was lost with it
        store.release(store.keep("", text, read(net, text))[0])
    store.close()


def test_a_file_that_holds_more_is_waited_for(tmp_path, text) -> None:
    net = network("base")
    state = read(net, text)
    stored(tmp_path, net, text, state)
    store = opened(tmp_path, net)
    (node,) = store._tree
    store.release(store.keep("", [*text[:70], 1, 2], read(net, [*text[:70], 1, 2]))[0])
    assert node.start == 70, "its rows are parts of one file now"
    back = store.restore("", [*text, 5])
    assert back is not None
    assert differing(back[0], state) == []
    store.close()


def test_what_does_not_fit_together_is_left_to_who_says_so(text) -> None:
    net = network("base")
    state = read(net, text)
    rows, end = snapshot.cut(state, 0, 70, net.config.qsa.ratio), snapshot.checkpoint(state)

    class Held:
        def __init__(self, content: Span | Checkpoint) -> None:
            self.content = content

    assert early.filled([Held(rows), Held(end)], {}, net.new_state, net.config.qsa.ratio) is None
    assert early.filled([Held(end), Held(end)], {}, net.new_state, net.config.qsa.ratio) is None

    def full():
        raise StrataError("no room")

    whole = snapshot.cut(state, 0, len(text), net.config.qsa.ratio)
    assert early.filled([Held(whole), Held(end)], {}, net.new_state, net.config.qsa.ratio) is not None
    assert early.filled([Held(whole), Held(end)], {}, full, net.config.qsa.ratio) is None
