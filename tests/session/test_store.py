"""What is kept comes back byte for byte, from memory and from files; what cannot be used is a miss with a reason."""

import time
from dataclasses import replace
from threading import Event

import pytest
import torch

from strata.errors import StrataError
from strata.session.folder import FileState, Folder
from strata.session.store import Store
from support.network import network, prompt
from support.states import differing

PRINT = "a" * 32
LENGTH = 150
STEP = 16


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def texts():
    """Three texts: two that part after 70 tokens, and one that has nothing to do with them."""
    one, other = prompt("other", LENGTH), prompt("other", LENGTH, seed=9)
    return {"one": one, "two": [*one[:70], *other[70:]], "other": other}


@pytest.fixture(scope="module")
def states(texts):
    """Settled states of each text at some boundaries."""
    net, found = network("other", drafts=True), {}
    with torch.inference_mode():
        for name, ids in texts.items():
            state, at = net.new_state(), 0
            for end in (30, 64, 70, 101, 128, 149):
                net.read(state, ids[at:end])
                net.settle(state)
                found[name, end], at = state.clone(), end
    return found


def opened(path=None, *, ram=1 << 30, disk=1 << 30, fingerprint=PRINT) -> Store:
    net = network("other", drafts=True)
    folder = Folder(path, fingerprint, reserve=0) if path else None
    return Store(net.config, drafts=True, ram=ram, step=STEP, folder=folder, disk=disk)


def keep(store, states, texts, name, *ends, save=False, **kwargs) -> None:
    for end in ends:
        place, _ = store.keep("", texts[name][:end], states[name, end].clone(), save=save, **kwargs)
        store.release(place)


def settle_writes(store) -> None:
    until = time.monotonic() + 20
    while store._folder.pending:
        assert time.monotonic() < until
        time.sleep(0.001)


def expect(store, states, texts, name, end) -> None:
    """The whole text is asked for, and the state behind `end` tokens of it is what comes back."""
    found = store.restore("", texts[name])
    assert found, f"nothing was found of {name}"
    state, place = found
    assert place.end == state.length == end
    assert differing(state, states[name, end]) == []
    store.release(place)


def test_a_state_comes_back_from_memory(states, texts) -> None:
    store = opened()
    keep(store, states, texts, "one", 30, 70, 101)
    keep(store, states, texts, "two", 128)
    expect(store, states, texts, "one", 101)
    expect(store, states, texts, "two", 128)
    assert store.restore("", texts["other"]) is None
    assert store.restore("picture", texts["one"]) is None  # case K19
    assert (store.counts.hits, store.counts.misses) == (2, 2)
    assert store.known("", texts["one"]) == 101
    assert store.known("", texts["one"][:101]) == 70, "one token at least is read"
    assert store.known("", texts["one"], every=64) == 0


def test_rows_are_kept_once_for_all_that_share_them(states, texts) -> None:
    store = opened()
    keep(store, states, texts, "one", 101)
    alone = store.ram_bytes
    keep(store, states, texts, "two", 101)
    apart = sum(node.rows.bytes for node in store._tree if node.start == 70 and list(node.full()) == texts["two"][:101])
    both = alone + apart + states_checkpoint(states)
    assert both <= store.ram_bytes < both + 4096, "but for what lies between tables that were split"
    assert 0 < apart < alone


def states_checkpoint(states) -> int:
    from strata.model.snapshot import checkpoint

    return checkpoint(states["one", 101]).bytes


def test_everything_is_found_again_after_a_restart(tmp_path, states, texts) -> None:  # case K07
    store = opened(tmp_path)
    keep(store, states, texts, "one", 30, 70, 101)
    keep(store, states, texts, "two", 128)
    keep(store, states, texts, "other", 149)
    store.close()
    again = opened(tmp_path)
    assert again.ram_bytes == 0
    assert again.disk_bytes == store.disk_bytes
    expect(again, states, texts, "one", 101)
    expect(again, states, texts, "two", 128)
    expect(again, states, texts, "other", 149)
    assert again.counts.refused == 0
    again.close()
    assert again.disk_bytes == store.disk_bytes, "nothing is written twice"


def test_what_was_saved_survives_without_a_close(tmp_path, states, texts) -> None:
    store = opened(tmp_path)
    keep(store, states, texts, "one", 70, 101, save=True)
    keep(store, states, texts, "two", 128, save=True)
    settle_writes(store)
    copy = tmp_path.with_name("copy")
    copy.mkdir()
    for path in tmp_path.glob("*.strata"):
        (copy / path.name).write_bytes(path.read_bytes())
    again = opened(copy)
    expect(again, states, texts, "one", 101)
    expect(again, states, texts, "two", 128)


def test_cold_conversations_are_parked_and_come_back(tmp_path, states, texts) -> None:
    store = opened(tmp_path, ram=0)
    for name in texts:
        keep(store, states, texts, name, 101)
    settle_writes(store)
    store.trim()
    assert store.ram_bytes == 0
    assert store.counts.evicted == 0
    for name in (*texts, *texts):
        expect(store, states, texts, name, 101)
        assert store.ram_bytes == 0, "what is in a file takes no memory again"
    # A conversation that parts from a parked one in the middle of an edge, and goes on from it.
    keep(store, states, texts, "one", 64)
    settle_writes(store)
    store.trim()
    assert store.ram_bytes == 0
    expect(store, states, texts, "two", 101)
    expect(store, states, texts, "one", 101)
    store.close()
    again = opened(tmp_path)
    for name in texts:
        expect(again, states, texts, name, 101)


def test_memory_that_waits_for_files_is_given_back_once_they_are_written(tmp_path, states, texts) -> None:
    store = opened(tmp_path, ram=0)
    store._folder._jobs.put(lambda: time.sleep(0.05))
    keep(store, states, texts, "one", 101)
    store.catch_up()
    assert store.ram_bytes > 0
    settle_writes(store)
    store.catch_up()
    assert store.ram_bytes == 0
    store.close()


def test_without_a_folder_the_least_recently_used_go(states, texts) -> None:
    store = opened()
    keep(store, states, texts, "one", 101)
    size = store.ram_bytes
    store = opened(ram=size + size // 2)
    for name in ("one", "other"):
        keep(store, states, texts, name, 101)
        assert store.ram_bytes <= size + size // 2
    expect(store, states, texts, "other", 101)
    assert store.restore("", texts["one"]) is None
    assert store.counts.evicted == 1


def test_the_disk_stays_within_its_budget(tmp_path, states, texts) -> None:
    store = opened(tmp_path, ram=0)
    keep(store, states, texts, "one", 101)
    settle_writes(store)
    size = store.disk_bytes
    store.close()
    store = opened(tmp_path, ram=0, disk=size + size // 2)
    for name in ("other", "one", "two", "other"):
        keep(store, states, texts, name, 101)
        settle_writes(store)
        store.trim()
        assert store.disk_bytes <= size + size // 2
        expect(store, states, texts, name, 101)
    store.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.strata")) == store.disk_bytes <= size + size // 2
    again = opened(tmp_path, ram=0, disk=size // 2)
    assert again.disk_bytes <= size // 2
    assert again.restore("", texts["other"]) is None
    again.close()
    assert sum(path.stat().st_size for path in tmp_path.glob("*.strata")) <= size // 2


@pytest.mark.parametrize("kind", ["rows", "checkpoint"])
def test_a_damaged_file_costs_what_it_held_and_nothing_else(tmp_path, states, texts, caplog, kind) -> None:  # case K17
    store = opened(tmp_path)
    for name in texts:
        keep(store, states, texts, name, 70, 128)
    files = [node.rows.file if kind == "rows" else node.checkpoint.file for node in store._tree]
    assert files
    store.close()
    again = opened(tmp_path, ram=0)
    # The last part of "one": what lies behind 70 tokens of it, or the state behind 128.
    (victim,) = [node for node in again._tree if node.end == 128 and list(node.full()) == texts["one"][:128]]
    path = (victim.rows if kind == "rows" else victim.checkpoint).file.path
    data = bytearray(path.read_bytes())
    data[-40] ^= 4
    path.write_bytes(data)
    expect(again, states, texts, "one", 70)
    assert f"{path}: not used, and given up: its checksum does not fit" in caplog.text
    assert again.counts.refused == 1
    expect(again, states, texts, "two", 128)
    expect(again, states, texts, "other", 128)
    keep(again, states, texts, "one", 128)
    expect(again, states, texts, "one", 128)
    again.close()
    whole = opened(tmp_path)
    expect(whole, states, texts, "one", 128)


def test_rows_whose_beginning_is_gone_are_a_miss(tmp_path, states, texts, caplog) -> None:
    store = opened(tmp_path)
    keep(store, states, texts, "one", 70, 128)
    (first,) = [node for node in store._tree if node.start == 0]
    store.close()
    first.rows.file.path.unlink()
    again = opened(tmp_path)
    assert again.restore("", texts["one"]) is None
    assert "the rows of tokens 0 to 70 before it are not stored" in caplog.text
    again.close()
    assert list(tmp_path.glob("*.strata")) == []


def test_a_store_of_another_model_is_a_miss_and_survives(tmp_path, states, texts, caplog) -> None:  # case K17
    store = opened(tmp_path)
    keep(store, states, texts, "one", 101)
    store.close()
    other = opened(tmp_path, fingerprint="b" * 32)
    assert other.restore("", texts["one"]) is None
    assert "belongs to another model" in caplog.text
    other.close()
    back = opened(tmp_path)
    expect(back, states, texts, "one", 101)


def test_a_disk_that_is_full_loses_only_what_memory_cannot_hold(tmp_path, states, texts, caplog) -> None:
    net = network("other", drafts=True)
    folder = Folder(tmp_path, PRINT, reserve=1 << 60)
    size = opened_size(states, texts)
    store = Store(net.config, drafts=True, ram=size + size // 2, step=STEP, folder=folder, disk=1 << 30)
    for name in ("one", "other"):
        keep(store, states, texts, name, 101, save=True)
        settle_writes(store)
        store.trim()
        expect(store, states, texts, name, 101)
    assert "are to stay free" in caplog.text
    assert store.ram_bytes <= size + size // 2
    assert store.restore("", texts["one"]) is None
    assert store.disk_bytes == 0
    store.close()


def opened_size(states, texts) -> int:
    store = opened()
    keep(store, states, texts, "one", 101)
    return store.ram_bytes


def test_halves_that_do_not_belong_together_are_a_miss(states, texts, caplog) -> None:  # case K05
    store = opened()
    keep(store, states, texts, "one", 30, 64)
    (node,) = [node for node in store._tree if node.end == 64]
    node.checkpoint.content = replace(node.checkpoint.content, length=60)
    expect(store, states, texts, "one", 30)
    assert "the rows end at token 64, the recurrent states at 60" in caplog.text
    assert store.counts.refused == 1


def test_a_state_with_numbers_that_are_not_finite_is_not_kept(states, texts, caplog) -> None:  # case P02
    store, state = opened(), states["one", 64].clone()
    state.layers[0].s.fill_(float("inf"))
    assert store.keep("", texts["one"][:64], state) == (None, False)
    assert "not finite" in caplog.text
    assert store.restore("", texts["one"]) is None
    assert store.ram_bytes == 0


def test_a_state_is_kept_under_its_own_tokens_only(states, texts) -> None:
    store = opened()
    with pytest.raises(StrataError, match="a state of 64 tokens is not that of 63 symbols"):
        store.keep("", texts["one"][:63], states["one", 64])


def test_what_is_discarded_is_gone_from_the_disk_too(tmp_path, states, texts) -> None:
    store = opened(tmp_path)
    place, new = store.keep("", texts["one"][:64], states["one", 64], save=True)
    assert new
    again, new = store.keep("", texts["one"][:64], states["one", 64])
    assert again is place
    assert not new
    store.release(again)
    store.discard(place)
    assert store.known("", texts["one"]) == 64, "it is in use"
    store.release(place)
    store.discard(place)
    assert store.known("", texts["one"]) == 0
    store.close()
    assert list(tmp_path.glob("*.strata")) == []


def test_a_conversation_keeps_few_checkpoints(states, texts) -> None:
    store = opened()
    keep(store, states, texts, "one", 30, 64, 70, 101, 128)
    # 64 went when 70 came, nearer than a step; 30 when 128 came: 98 tokens back are not twice 58
    assert {node.end for node in store._tree if node.checkpoint} == {70, 101, 128}
    store = opened()
    keep(store, states, texts, "one", 64, marked=True)
    keep(store, states, texts, "one", 70)
    assert {node.end for node in store._tree if node.checkpoint} == {64, 70}
    store = opened()
    keep(store, states, texts, "one", 64)
    keep(store, states, texts, "one", 70, forced=(64,))
    assert {node.end for node in store._tree if node.checkpoint} == {64, 70}


def test_a_failed_file_is_not_tried_again(tmp_path, states, texts, monkeypatch) -> None:
    store = opened(tmp_path, ram=0)
    seen = Event()

    def fail(*_) -> None:
        seen.wait()
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store._folder, "_write", fail)
    keep(store, states, texts, "one", 64, save=True)
    files = [part.file for node in store._tree for part in (node.rows, node.checkpoint)]
    seen.set()
    settle_writes(store)
    assert all(file.state is FileState.FAILED for file in files)
    store.trim()
    assert store.ram_bytes == 0
    assert store.restore("", texts["one"]) is None
