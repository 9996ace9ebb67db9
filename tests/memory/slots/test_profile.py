"""A learned profile: the old one or the new one after a crash, and nothing that is not ours is believed (case Q06)."""

import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from strata.memory.slots import Profile, ProfileError, SlotCache, SlotError

SHAPE = (3, 8)


def profile(seed: int = 1) -> Profile:
    random_ = np.random.default_rng(seed)
    return Profile(random_.random(SHAPE, np.float32), random_.random(SHAPE, np.float32))


def test_what_was_saved_is_loaded_and_says_what_to_fetch_first(tmp_path) -> None:
    cache = SlotCache([10], [0, 0, 0], [4], experts=8)
    hot = np.array([[2, 7], [0, 3], [1, 1]])
    for _ in range(5):
        cache.seen(hot)
    path = tmp_path / "deep" / "down" / "experts.profile"
    cache.profile().save(path, "the model")
    again = SlotCache.from_profile(Profile.load(path, "the model", SHAPE), [10], [0, 0, 0], [3])
    assert {(move.layer, move.expert) for move in again.moves(3)} == {(2, 7), (0, 3), (1, 1)}
    assert [file.name for file in path.parent.iterdir()] == ["experts.profile"]


def test_saving_twice_replaces(tmp_path) -> None:
    path = tmp_path / "p"
    for seed in (1, 2):
        profile(seed).save(path, "m")
    assert np.array_equal(Profile.load(path, "m", SHAPE).quick, profile(2).quick)


def test_every_cut_and_every_flipped_byte_is_refused(tmp_path) -> None:
    path = tmp_path / "p"
    profile().save(path, "m")
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(ProfileError, match=r"is not used: (it is no profile|its )"):
            Profile.load(path, "m", SHAPE)
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x10]) + whole[place + 1 :])
        with pytest.raises(ProfileError, match="is not used"):
            Profile.load(path, "m", SHAPE)
    path.write_bytes(whole + b"\0")
    with pytest.raises(ProfileError, match="checksum"):
        Profile.load(path, "m", SHAPE)


@pytest.mark.parametrize(
    ("fingerprint", "shape", "words"),
    [("another", SHAPE, "another model"), ("m", (3, 9), "3 layers with 8 experts, not of 3 with 9")],
)
def test_a_profile_of_another_model_is_refused(tmp_path, fingerprint, shape, words) -> None:
    profile().save(tmp_path / "p", "m")
    with pytest.raises(ProfileError, match=words):
        Profile.load(tmp_path / "p", fingerprint, shape)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_counts_that_are_no_counts_are_refused(tmp_path, bad) -> None:
    quick = np.full(SHAPE, bad)
    Profile(quick, quick).save(tmp_path / "p", "m")
    with pytest.raises(ProfileError, match="no counts"):
        Profile.load(tmp_path / "p", "m", SHAPE)


def test_a_file_that_is_not_there_or_is_none(tmp_path) -> None:
    with pytest.raises(ProfileError, match="no learned profile at"):
        Profile.load(tmp_path / "p", "m", SHAPE)
    with pytest.raises(ProfileError, match="no regular file"):
        Profile.load(tmp_path, "m", SHAPE)
    with pytest.raises(ProfileError, match="cannot be written"):
        profile().save(tmp_path, "m")
    assert list(tmp_path.parent.glob("*.unfinished")) == []


def test_layers_that_do_not_fit() -> None:
    with pytest.raises(SlotError, match="of 3 layers and the cache of 2"):
        SlotCache.from_profile(profile(), [10], [0, 0], [3])


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_at_any_step_leaves_the_old_one(tmp_path, monkeypatch, step) -> None:
    path = tmp_path / "p"
    profile(1).save(path, "m")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*(os, "fsync") if step == "fsync" else (type(path), "replace"), full)
    with pytest.raises(ProfileError, match="No space left"):
        profile(2).save(path, "m")
    assert np.array_equal(Profile.load(path, "m", SHAPE).quick, profile(1).quick)
    assert [file.name for file in tmp_path.iterdir()] == ["p"]


def test_leftovers_of_writers_that_were_ended_go(tmp_path) -> None:
    old, new, other = (tmp_path / name for name in ("p.123.unfinished", "p.124.unfinished", "q.123.unfinished"))
    for each in (old, new, other):
        each.touch()
    for each in (old, other):
        os.utime(each, (time.time() - 10_000,) * 2)
    profile().save(tmp_path / "p", "m")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["p", "p.124.unfinished", "q.123.unfinished"]


WRITER = """
import sys
from pathlib import Path
import numpy as np
from strata.memory.slots.profile import Profile
both = [Profile(np.full((48, 512), value), np.full((48, 512), value)) for value in (1.0, 2.0)]
print("ready", flush=True)
while True:
    for each in both:
        each.save(Path(sys.argv[1]), "m")
"""


def test_a_writer_killed_at_any_time_leaves_one_or_the_other(tmp_path) -> None:
    path, random_ = tmp_path / "p", random.Random(5)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for _ in range(4):
        command = [sys.executable, "-c", WRITER, str(path)]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout.readline() == "ready\n"
            until = time.monotonic() + 60
            while not path.exists() and time.monotonic() < until:
                time.sleep(0.001)
            time.sleep(random_.random() / 20)
            writer.send_signal(signal.SIGKILL)
        found = Profile.load(path, "m", (48, 512))
        assert found.quick.min() == found.quick.max() == found.slow.max()
