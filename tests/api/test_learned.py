"""What a cache of experts has learned comes back at the next start, and nothing that lies there stops one."""

import logging
import os
import struct
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("triton")

import strata
from strata.cli.fleet import _engine
from strata.cli.session import _say_where
from strata.config import profiles_folder, resolve
from strata.gguf import open_model
from strata.loading import gpu, tiers
from strata.loading.files import ModelFile
from strata.loading.learned import EVERY, Learned
from strata.memory.slots import Profile
from strata.model import load_config, load_weights
from strata.server.served import Served
from strata.worker import Ready
from strata.worker.messages import Limits
from support.planned import planned
from support.stored import write_stored

SIZES, CLASSES, E = [10, 20], [0, 1, 0], 8
HOT = np.array([[0, 3], [1, 5], [2, 7]])


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def visited(learned, times=5):
    cache = learned.cache(SIZES, CLASSES, E)
    for _ in range(times):
        cache.seen(HOT)
    return cache


def hottest(cache, count):
    flat = np.argsort(-cache.counts().ravel(), kind="stable")[:count]
    return {divmod(int(key), E) for key in flat}


def test_the_second_start_begins_with_what_was_hot(tmp_path):
    first = Learned(tmp_path / "deep", "model")
    visited(first)
    first.close(5)
    second = Learned(tmp_path / "deep", "model")
    cache = second.cache(SIZES, CLASSES, E)
    assert (first.used, second.used, second.note) == (False, True, "")
    assert hottest(cache, 3) == {tuple(pair) for pair in HOT.tolist()}
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["model.profile"]


def test_nothing_is_written_where_nothing_was_seen(tmp_path):
    learned = Learned(tmp_path, "model")
    learned.cache(SIZES, CLASSES, E)
    learned.close(0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda data, _: data[:-1], "checksum"),
        (lambda data, _: data[:40] + b"\xff" + data[41:], "checksum"),
        (lambda data, _: data[:8] + b"\x63" + data[9:], "form is 99"),
        (lambda *_: b"hello", "no profile"),
        (lambda *_: b"", "no profile"),
        (lambda _, other: other(sizes=[10, 24]), "another model"),
        (lambda _, other: other(experts=E * 2), "another model"),
        (lambda _, other: other(name="else"), "another model"),
    ],
)
def test_what_cannot_be_used_is_said_once_and_replaced(tmp_path, spoil, words, caplog):
    def other(name="model", sizes=SIZES, experts=E):
        learned = Learned(tmp_path / "aside", name)
        cache = learned.cache(sizes, CLASSES, experts)
        cache.seen(HOT)
        learned.close(1)
        found = learned.path.read_bytes()
        learned.path.unlink()
        return found

    path = tmp_path / "model.profile"
    path.write_bytes(spoil(other(), other))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        learned = Learned(tmp_path, "model")
        visited(learned)
        learned.close(5)
    assert not learned.used
    assert words in learned.note
    assert "experts are learned anew" in learned.note
    assert len([record for record in caplog.records if words in record.message]) == 1
    again = Learned(tmp_path, "model")
    again.cache(SIZES, CLASSES, E)
    assert (again.used, again.note) == (True, "")


def test_what_is_no_file_of_ours_is_not_waited_for_nor_read_whole(tmp_path):
    """A pipe that nobody writes to, a folder, and a file of a terabyte that is nearly all hole."""
    for name, make, words in (
        ("pipe", os.mkfifo, "no regular file"),
        ("folder", Path.mkdir, "no regular file"),
        ("hole", Path.touch, "checksum"),
    ):
        learned = Learned(tmp_path, name)
        make(learned.path)
        if name == "hole":
            with learned.path.open("r+b") as file:
                file.write(b"StrataXP" + struct.pack("<I", 1))
                file.truncate(1 << 40)
        assert not learned.cache(SIZES, CLASSES, E).counts().any()
        assert words in learned.note


def test_a_folder_that_is_none_is_said_once(tmp_path, caplog):
    (tmp_path / "file").write_text("no folder")
    clock = Clock()
    with caplog.at_level(logging.WARNING):
        learned = Learned(tmp_path / "file", "model", clock=clock)
        visited(learned)
        for windows in (1, 2, 3):
            clock.now += EVERY + 1
            learned.keep(windows)
            learned._writer.join()
        learned.close(4)
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1
    assert "cannot be read" in learned.note  # so it was said at the start, too


def test_it_is_kept_now_and_then_by_a_thread_of_its_own(tmp_path, monkeypatch):
    clock, saved, going = Clock(), [], threading.Event()

    def save(profile, path, identity):
        saved.append((threading.current_thread().name, float(profile.quick.sum()), path, identity))
        assert going.wait(30)

    monkeypatch.setattr(Profile, "save", save)
    learned = Learned(tmp_path, "model", clock=clock)
    cache = visited(learned)
    learned.keep(5)
    assert saved == []  # too early
    clock.now += EVERY
    learned.keep(5)
    clock.now += EVERY
    cache.seen(HOT)
    learned.keep(6)  # the first one is still being written: no second beside it
    end = time.monotonic() + 30
    while not saved and time.monotonic() < end:
        time.sleep(0.001)
    assert [name for name, *_ in saved] == ["strata-profile"]
    going.set()
    learned._writer.join()
    clock.now += EVERY
    learned.keep(6)
    learned._writer.join()
    clock.now += EVERY
    learned.keep(6)  # nothing has happened
    learned.close(6)
    assert len(saved) == 2
    learned.close(7)
    assert len(saved) == 3
    assert saved[2][0] == "MainThread"
    assert saved[0][1] < saved[1][1]


def test_a_model_in_tiers_begins_with_what_was_hot(tmp_path):
    directory = open_model(write_stored(tmp_path / "m.gguf", name="slim"))
    config = load_config(directory.metadata)
    config, weights = replace(config, mtp=False), replace(load_weights(directory, config), mtp=None)
    device, made = torch.device("cpu"), planned(directory, config, 4)
    hot = np.array([[0, 7], [1, 6], [1, 5], [3, 2]])

    def start():
        learned = Learned(tmp_path / "profiles", "model")
        return learned, tiers.build(weights, config, made, device, 1, learned=learned)

    learned, tier = start()
    assert not any(tier.cache.slot_of[layer, expert] >= 0 for layer, expert in hot.tolist())
    for _ in range(3):
        tier.cache.seen(hot)
    tier.close()
    learned.close(3)
    learned, tier = start()
    tier.close()
    assert np.argwhere(tier.cache.slot_of >= 0).tolist() == sorted(hot.tolist())


def test_where_it_lies_and_how_it_is_turned_off(tmp_path, monkeypatch):
    settings = resolve({}, environment={}).settings
    assert profiles_folder(settings, {"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "strata" / "experts"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    at_home = tmp_path / "home" / ".cache" / "strata" / "experts"
    assert profiles_folder(settings, {}) == profiles_folder(settings, {"XDG_CACHE_HOME": "relative"}) == at_home
    off = resolve({}, environment={"STRATA_EXPERT_PROFILE": "no"}).settings
    assert profiles_folder(off, {}) is None


def test_the_way_from_a_setting_to_the_cache(tmp_path, monkeypatch):
    """The command's engine is told where; loading on a GPU makes the profile of that model there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    settings = resolve({}, environment={}).settings
    folder = tmp_path / "strata" / "experts"
    assert _engine(settings, None).profiles == str(folder)
    assert _engine(replace(settings, expert_profile=False), None).profiles is None

    class StopError(Exception):
        pass

    met = []

    def network(*_, learned, **__):
        met.append(learned)
        raise StopError

    monkeypatch.setattr(gpu, "find", lambda _: gpu.Card(0, "Abacus 9", 90, 10**11, 10**11))
    monkeypatch.setattr(gpu, "check_card", lambda _: None)
    monkeypatch.setattr(gpu, "network", network)
    for profiles in (folder, None):
        with pytest.raises(StopError):
            strata.load("pebble", device="cuda", vram=10**10, profiles=profiles)
    assert met[0].path == folder / f"{ModelFile.open('pebble').fingerprint}.profile"
    assert met[1] is None


def test_an_engine_keeps_it_between_windows_and_at_its_end():
    class Told:
        note, kept, closed = "", (), ()

        def keep(self, windows):
            self.kept += (windows,)

        def close(self, windows):
            self.closed += (windows,)

    class Tier:
        windows = 7

        def gauges(self):
            return {}

    told = Told()
    with strata.load("pebble", threads=1) as model:
        engine = model.source.engine
        engine._learned, engine._tier = told, Tier()
        model.complete("one two", max_tokens=3)
        assert set(told.kept) == {7}
        assert told.closed == ()
    assert told.closed == (7,)


def test_what_was_wrong_with_it_is_told_where_people_look(caplog):
    notes = ("the learned profile is not used",)
    ready = Ready("m", 1, 1, Limits(1, 1), "f", notes=notes, placed="cuda:0", device="cuda:0")
    said = []

    class Output:
        def note(self, text):
            said.append(text)

    _say_where(ready, resolve({}, environment={}).settings, Output())
    assert said == ["on cuda:0", "the learned profile is not used"]

    class Client:
        def __init__(self):
            self.ready = ready

    with caplog.at_level(logging.WARNING):
        served = Served(Client(), None, "mine", awaited=False)
        served.loaded()
        served.loaded()
    assert [record.getMessage() for record in caplog.records] == ["mine: the learned profile is not used"]
