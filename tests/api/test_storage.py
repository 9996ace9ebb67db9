"""Models larger than the memory they are given, and every way of reading n-gram rows: no byte is another."""

import errno
import logging
from dataclasses import replace

import numpy as np
import psutil
import pytest
import torch

import strata
from strata.errors import RequestError, StrataError
from strata.gguf import open_model
from strata.loading import network, storage
from strata.loading.bundled import find
from strata.loading.files import ModelFile
from strata.loading.network import load_network
from strata.loading.planning import wishes_of
from strata.loading.sizes import sizes_of
from strata.loading.stored import is_expert
from strata.memory.budget import DoesNotFitError, Machine, Sizes, least, plan
from strata.memory.budget.plan import Arena
from strata.memory.reads import file
from strata.model import load_config
from strata.ops.moe.held import HeldMoe
from strata.ops.ngram.table import NgramTable
from support.network import prompt
from support.stored import write_stored

WORDS = "Count from 3 to 12."


@pytest.fixture(autouse=True)
def no_grad():
    with torch.inference_mode():
        yield


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """The tiny model with a draft head, experts in Q8_0."""
    return write_stored(tmp_path_factory.mktemp("storage") / "tiny.gguf", words=True)


def sizes(path) -> Sizes:
    directory = open_model(path)
    return sizes_of(directory, load_config(directory.metadata))


def ram_for(found: Sizes, experts: int, **wished) -> int:
    """Main memory of which a plan gives experts so many bytes."""
    wanted = wishes_of(**({"conversations": 8, "context": found.context} | wished))
    machine = Machine(0, 1 << 50)
    parts = least.least_ram(machine, found, wanted, least.settle(machine, found, wanted))
    fixed = sum(part.nbytes for part in parts if part.name not in {least.FEWEST, least.SYSTEM})
    return -(-(fixed + experts) * 16 // 15) + 16


def run(path, **options):
    """Everything a pass, windows and drafts compute: residuals, logits and state, as bytes."""
    loaded = load_network(ModelFile.open(path), device="cpu", threads=1, **options)
    net = loaded.network
    net = replace(net, drafts=net.weights.mtp is not None)
    ids = [i % net.config.V for i in prompt("base", 90)]
    state = net.new_state()
    found = [net.read(state, ids[:70])]
    for first in (70, 73):
        done = net.window([(state, ids[first : first + 3])])[0]
        found.append(net.logits(done.residual))
        net.commit(state, done, 3)
    found += net.draft(state, ids[76], 3) if net.drafts else []
    net.settle(state)
    found += [t for _, t in state.tensors()]
    return loaded, [t.clone() for t in found]


def same(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.95])
def test_any_memory_gives_the_same_bytes(tiny, share):
    found = sizes(tiny)
    loaded, expected = run(tiny)
    assert loaded.storage.tier is None
    assert not loaded.placement.storage
    fewest = least.fewest_stored(found)
    assert fewest < found.expert_bytes
    limit = ram_for(found, fewest + int(share * (found.expert_bytes - fewest)))
    loaded, bytes_ = run(tiny, ram=limit)
    same(bytes_, expected)
    tier = loaded.storage.tier
    made = plan(Machine(0, limit), found, wishes_of(conversations=8, context=found.context))
    assert made.arena is Arena.PART
    assert tier.slots == sum(one.in_ram for one in made.classes)
    assert tier.nbytes == made.ram.bytes_of(least.EXPERTS)
    assert all(isinstance(layer.moe, HeldMoe) for layer in loaded.network.weights.layers)
    assert not isinstance(loaded.network.weights.mtp.layer.moe, HeldMoe)
    assert tier.stats.misses > 0
    assert tier.stats.hits > 0
    assert "read from the file" in str(loaded.placement)
    loaded.storage.close()


@pytest.mark.parametrize("mode", ["ram", "mmap", "direct"])
def test_any_way_of_reading_rows_gives_the_same_bytes(tiny, mode):
    _, expected = run(tiny)
    loaded, found = run(tiny, ngram=mode)
    same(found, expected)
    (table,) = [layer.ple.table for layer in loaded.network.weights.layers if layer.ple]
    assert isinstance(table, NgramTable)
    stats = loaded.storage.stats()["storage"]["ngram"]
    assert stats["asked"] == 3
    assert ("hits" in stats) == (mode == "direct")
    loaded.storage.close()


def test_both_at_once_through_the_library():
    """Pebble answers the same, and says what it met."""
    with strata.load("pebble", threads=1, device="cpu") as model:
        expected = model.chat([{"role": "user", "content": WORDS}], max_tokens=40).text
    found = sizes(find("pebble"))
    limit = ram_for(found, found.expert_bytes // 2, ngram="direct", parked=0)
    with strata.load("pebble", threads=1, device="cpu", ram=limit, ngram="direct", keep=False) as model:
        assert model.chat([{"role": "user", "content": WORDS}], max_tokens=40).text == expected
        stats = model.source.engine.stats()
        met = stats["storage"]["experts"]
        assert met["misses"] > 0
        assert stats["experts"] == {"vram": 0, "ram": met["hits"], "ssd": met["misses"]}
        assert stats["storage"]["ngram"]["asked"] > 0
        assert "experts" in model.ready.placed


def test_a_large_table_is_read_directly_by_itself(tiny, monkeypatch):
    monkeypatch.setattr(storage, "LARGE", 100)
    loaded, found = run(tiny)
    same(found, run(tiny)[1])
    assert loaded.storage.stats()["storage"]["ngram"]["asked"] == 3


def test_too_little_is_refused_with_what_would_do(tiny):
    found = sizes(tiny)
    enough = ram_for(found, least.fewest_stored(found))
    with pytest.raises(DoesNotFitError, match=r"of RAM are needed, .* for the fewest experts.*what would help: .*RAM$"):
        load_network(ModelFile.open(tiny), device="cpu", threads=1, ram=enough - 64, context=found.context)
    load_network(ModelFile.open(tiny), device="cpu", threads=1, ram=enough, context=found.context).storage.close()


def test_a_table_in_memory_counts(tiny):
    found = sizes(tiny)
    limit = ram_for(found, found.expert_bytes, ngram="ram")
    loaded = load_network(ModelFile.open(tiny), device="cpu", threads=1, ram=limit, ngram="ram", context=found.context)
    assert loaded.storage.tier is None
    loaded.storage.close()
    loaded = load_network(
        ModelFile.open(tiny), device="cpu", threads=1, ram=limit - 5000, ngram="ram", context=found.context
    )
    assert loaded.storage.tier is not None
    loaded.storage.close()


@pytest.mark.parametrize("bad", [{"ram": 0}, {"ram": True}, {"ram": "4GB"}, {"ngram": "disk"}])
def test_nonsense_is_refused(bad):
    with pytest.raises(RequestError, match=r"ram must be|are read by ram, mmap, direct"):
        strata.load("pebble", **bad)


def test_loading_shows_how_far_it_is_and_can_be_stopped(tiny):
    found = sizes(tiny)
    limit = ram_for(found, least.fewest_stored(found), ngram="ram")
    dense = found.stored - found.expert_bytes
    told = []
    loaded = load_network(
        ModelFile.open(tiny), device="cpu", threads=1, ram=limit, ngram="ram", on_load=lambda *two: told.append(two)
    )
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1]
    assert len({total for _, total in told}) == 1
    loaded.storage.close()

    def stop(done, _total):
        if done > dense:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load_network(ModelFile.open(tiny), device="cpu", threads=1, ram=limit, ngram="ram", on_load=stop)


def test_memory_that_others_take_meanwhile_ends_loading(tiny, monkeypatch):
    found = sizes(tiny)
    limit = ram_for(found, least.fewest_stored(found))
    real, calls = psutil.virtual_memory(), []

    def memory():
        calls.append(0)
        return real._replace(available=real.available if len(calls) < 2 else 1000)

    monkeypatch.setattr(psutil, "virtual_memory", memory)
    with pytest.raises(StrataError, match="memory ran short while experts were read"):
        load_network(ModelFile.open(tiny), device="cpu", threads=1, ram=limit)


def test_experts_that_are_widened_are_all_in_memory(tmp_path):
    path = write_stored(tmp_path / "m.gguf", narrow="Q4_0", words=True)
    found = sizes_of(open_model(path), load_config(open_model(path).metadata), gpu=False)
    assert found.expert_bytes == 0
    limit = ram_for(found, 0)
    load_network(ModelFile.open(path), device="cpu", threads=1, ram=limit, context=found.context).storage.close()
    with pytest.raises(DoesNotFitError, match="of RAM are needed"):
        load_network(ModelFile.open(path), device="cpu", threads=1, ram=limit - 100, context=found.context)


def test_the_file_system_refusing_direct_reads_changes_no_byte(tiny, monkeypatch, caplog):
    opened = file.os.open

    def open_(path, flags, *rest):
        if flags & file.os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *rest)

    monkeypatch.setattr(file.os, "open", open_)
    found = sizes(tiny)
    limit = ram_for(found, least.fewest_stored(found))
    with caplog.at_level(logging.WARNING, "strata.memory"):
        loaded, found = run(tiny, ram=limit, ngram="direct")
    same(found, run(tiny)[1])
    assert len(caplog.records) == 2  # the experts' file and the table's, opened for each
    loaded.storage.close()


def test_experts_are_not_touched_where_they_do_not_all_fit(tiny):
    directory = open_model(tiny)
    watched = network._Watched(directory, 1, None, touch_experts=False)
    name = next(name for name in directory.tensors if is_expert(name))
    assert np.shares_memory(watched.raw(name), directory.raw(name))
    assert watched._done == 0
    assert watched.raw("output.weight") is not None
    assert watched._done > 0
